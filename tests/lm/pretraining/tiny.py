"""What a tiny run reads, and its command."""

from __future__ import annotations

WORDS = ["the", "cat", "sat", "on", "a", "mat", "while", "rain", "fell", "and", "nobody", "came"]


def words(tokens, out, *more):
    return [
        *("pretrain", "--size", "tiny", "--tokens", str(tokens), "-o", str(out)),
        *("--pool", "8", "--keep", "4", "--length", "16", "--steps", "6"),
        *("--learning-rate", "1e-2", "--eval-steps", "3", "--save-steps", "2"),
        *("--logging-steps", "2", "--eval-sequences", "8", "--quiet"),
        *more,
    ]
