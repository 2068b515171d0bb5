"""What a language model makes of examples: losses, gradients, hidden states."""
