"""A corpus as tokens in files: made once, mapped into memory, shared by any number of runs.

The folder holds `train.bin` and `validation.bin` (the tokens of all documents one after another,
each followed by the end-of-text token), `tokenizer.json`, and `tokens.json`, which says what they
are and comes last: a folder without it is not complete. Sequences are cut when they are read, so
that one folder serves every length.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.errors import InputFileError
from uniproto.pretraining.sequences import Sequences

HEADER, TRAIN, VALIDATION = "tokens.json", "train.bin", "validation.bin"
FORMAT = 1


@dataclass(frozen=True)
class TokenFiles:
    """A complete folder of tokens."""

    folder: Path
    header: dict[str, Any]

    @property
    def vocab(self) -> int:
        return int(self.header["vocab"])

    def identity(self) -> dict[str, Any]:
        """What makes two runs see the same tokens."""
        names = ("corpus", "column", "tokenizer", "vocab", "validation", "seed", "train_tokens")
        return {name: self.header[name] for name in names}

    def sequences(self, part: str, length: int) -> Sequences:
        """The sequences of `train.bin` or `validation.bin`."""
        return Sequences(self.folder / part, np.dtype(self.header["dtype"]), length)


def load_tokens(folder: str | Path) -> TokenFiles:
    """A folder of tokens that is complete."""
    folder = Path(folder)
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        if header["format"] != FORMAT:
            raise ValueError("its format is another one")
        itemsize = np.dtype(header["dtype"]).itemsize
        for name, count in (
            (TRAIN, header["train_tokens"]),
            (VALIDATION, header["validation_tokens"]),
        ):
            if (folder / name).stat().st_size != count * itemsize:
                raise ValueError(f"{name} has another size than {count:,} tokens")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputFileError(
            f"{folder}: the folder must hold prepared tokens. Got no "
            f"{Path(error.filename).name} there instead. Name the corpus with --data: it is then "
            "prepared there."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(
            f"{folder}: the folder must hold prepared tokens. It is damaged ({error}). Delete it, "
            "and name the corpus with --data."
        ) from error
    return TokenFiles(folder, header)
