"""Random questions, random damage: every outcome is a valid selection or a clear refusal."""
