"""What survives a kill: atomic files, locks, checkpoints, metrics."""
