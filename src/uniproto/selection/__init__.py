"""The result of a selection: its numbers, its files, their checks."""
