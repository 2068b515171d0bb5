"""Features of examples from a language model: losses, gradients, hidden states."""
