"""Training data for a task, chosen from a large pool."""
