"""The checked question: rows, target, weights, groups, k."""
