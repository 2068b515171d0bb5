"""What the experiments share: setup and rows, statistics, joined results, fine-tuning runs."""
