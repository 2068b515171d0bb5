"""Finished parts, kept in a folder so that a run whose driver is killed goes on without them.

A part's file is named by a digest of everything its picks follow from: the settings, the target,
the rows left out, and the shard itself. A part of another question has another name and is never
looked at. Files are written whole to another name, and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.errors import InputFileError, OutputError
from uniproto.scale.parts import Part

FOLDER = "parts"


class KeptParts:
    """The finished parts of one question, in the folder of its result."""

    def __init__(self, folder: Path, question: Mapping[str, Any]) -> None:
        self.folder = folder / FOLDER
        self._question = json.dumps(question, sort_keys=True, default=str)

    def _path(self, part: Mapping[str, Any]) -> Path:
        text = self._question + json.dumps(part, sort_keys=True, default=str)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"

    def read(self, identity: Mapping[str, Any]) -> Part | None:
        """The part of a shard, if it was finished before."""
        path = self._path(identity)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                shift, reach, seconds = arrays["numbers"].tolist()
                digest = str(arrays["digest"])
                return Part(arrays["rows"], arrays["features"], shift, reach, digest, seconds)
        except FileNotFoundError:
            return None
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise InputFileError(
                f"{path}: a finished part must be a whole file of this version. It is not "
                f"({error}). Delete it, and it is computed again."
            ) from error

    def write(self, identity: Mapping[str, Any], part: Part) -> None:
        """Keep a part that is finished."""
        path = self._path(identity)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                np.savez(
                    file,
                    rows=part.rows,
                    features=part.features,
                    numbers=np.array([part.shift, part.reach, part.seconds]),
                    digest=np.array(part.digest),
                )
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise OutputError(
                f"{path}: the folder of finished parts must be writable. It is not "
                f"({error.strerror or error}). Free some space, or choose another folder."
            ) from error

    def remove(self) -> None:
        """Forget everything: the run has ended and its result is safe."""
        shutil.rmtree(self.folder, ignore_errors=True)
