"""The search for the rows of lowest cost, and the proof that none cost less."""
