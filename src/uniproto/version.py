"""The version, in a file of its own: everything may read it, and it reads nothing."""

__version__ = "0.1.0"
