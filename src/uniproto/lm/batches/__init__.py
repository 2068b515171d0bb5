"""Which examples of a pool to learn from, in every step of a training run."""
