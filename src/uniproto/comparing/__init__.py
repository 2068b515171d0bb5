"""Comparisons of methods, and costs over k: `uniproto.compare`, `uniproto.path`."""
