"""Find models by name or path: a local folder, a package, or the hub's cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uniproto.data.files import first_line
from uniproto.data.tables import file_digest
from uniproto.errors import (
    ChangedInputError,
    InputFileError,
    InvalidInputError,
    MissingExtraError,
    UniprotoError,
    invalid,
)
from uniproto.features.cache import remembered_digests
from uniproto.runtime.gpu import driver_sees_gpu

_NOT_WEIGHTS = (".md", ".png", ".jpg", ".gitattributes", ".lock")
_CONFIGURATIONS = ("config.json", "modules.json", "adapter_config.json")
_PATIENCE = 10.0  # seconds to wait for the hub
_OTHER_FRAMEWORKS = ["*.h5", "*.msgpack", "*.onnx", "*.ot", "onnx/*", "openvino/*", "coreml/*"]
_OTHER_WEIGHTS = [*_OTHER_FRAMEWORKS, "*.bin", "*.pt", "*.pth", "*.gguf"]  # other than safetensors


def require_packages(packages: Sequence[str], purpose: str, extra: str) -> None:
    """Refuse a model if packages that it needs are missing."""
    if any(find_spec(package) is None for package in packages):
        raise MissingExtraError(purpose, extra)


def find_model(name: str, *, download: bool = True) -> Path:
    """The location of a model: its folder, .gguf file, or snapshot from the Hugging Face hub.

    If the hub cannot be reached, and without `download`, the local cache is used. A
    folder must look like a model's before its files are read: one that is named by mistake can be
    all of the disk.
    """
    if not isinstance(name, str | os.PathLike):
        raise InvalidInputError(
            f"must be a name or a path, not a {type(name).__name__}. Name its folder; a loaded "
            "model goes to lm.curate(model=…, tokenizer=…).",
            parameter="model",
        )
    path = Path(name).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return path
    if any((path / file).is_file() for file in _CONFIGURATIONS):
        return path
    kinds = "the model must be a model's folder, a .gguf file or a name on the Hugging Face hub"
    if path.exists() or _is_path(name):
        found = (
            "There is no config.json in it" if path.exists() else "There is no such folder or file"
        )
        raise InputFileError(f"{name}: {kinds}. {found}. Check the path.")
    import huggingface_hub as hub
    from huggingface_hub.errors import HTTPError

    failures = (OSError, ValueError, RuntimeError, HTTPError)
    reason = "nothing is downloaded for a record that names a model"
    if download:
        try:
            files = hub.HfApi().model_info(name, timeout=_PATIENCE).siblings or ()
            is_safe = any(file.rfilename.endswith(".safetensors") for file in files)
            others = _OTHER_WEIGHTS if is_safe else _OTHER_FRAMEWORKS
            return Path(hub.snapshot_download(name, ignore_patterns=others))
        except failures as error:
            reason = first_line(error).rstrip(".")
    try:
        found = hub.snapshot_download(name, ignore_patterns=_OTHER_WEIGHTS, local_files_only=True)
    except failures as error:
        raise InputFileError(
            f"{name}: {kinds}. It is no folder here and not in the hub's cache on this machine, "
            f"and was not downloaded ({reason}). Check the name. 'hf download {name}' fetches it "
            "where there is a network."
        ) from error
    return Path(found)


def _is_path(name: str) -> bool:
    """Whether this can only be a path, as hub names are `name` or `owner/name`."""
    return (
        name.startswith((".", "/", "~"))
        or name.endswith(".gguf")
        or "\\" in name
        or name.count("/") > 1
        or ("/" in name and Path(name).parent.is_dir())
    )


def require_digest(identity: str, name: str, digest: str | None) -> None:
    """Refuse a model other than the recorded one, before it is loaded."""
    if digest is not None and identity_digest(identity) != digest:
        raise ChangedInputError(
            f"The model {name!r} must be the one with the digest {digest[:12]}…. The one on this "
            f"machine has {identity_digest(identity)[:12]}…, and was not loaded. Restore that "
            "model, or compute the vectors again."
        )


def identity_digest(identity: str) -> str:
    """The identity of a model in records: a digest of everything that its vectors depend on."""
    return hashlib.sha256(identity.encode()).hexdigest()


def model_identity(place: Path) -> str:
    """The identity of a model: the commit of a hub snapshot, otherwise a digest of its files."""
    if place.is_file():
        return file_digest(place)
    resolved = place.resolve()
    if resolved.parent.name == "snapshots":
        return f"{resolved.parent.parent.name}@{resolved.name}"
    files = {file.relative_to(place).as_posix(): file for file in place.rglob("*")}
    known = {
        name: file
        for name, file in sorted(files.items())
        if file.is_file() and not name.startswith(".") and not name.endswith(_NOT_WEIGHTS)
    }
    digests = remembered_digests(known.values())
    listed = "".join(f"{name} {digests[file]}\n" for name, file in known.items())
    return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()


def read_settings(path: Path, kind: type[Any] = dict) -> Any:
    """A configuration file: an object or a list of objects; empty if it does not exist."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        parts = found if isinstance(found, list) else [found]
        if isinstance(found, kind) and all(isinstance(part, dict) for part in parts):
            return found
        reason = f"it holds {type(found).__name__}"
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError, RecursionError) as error:
        reason = first_line(error)
    raise InputFileError(
        f"{path}: a model's configuration must be JSON of the usual form. It could not be read "
        f"({reason}). Get the model again."
    )


def torch_device(device: str) -> Any:
    """The device of that name; `auto` prefers a GPU."""
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise invalid(
            "device",
            "must name a device torch can use",
            repr(device),
            "Pass device='cpu', or 'auto' for a GPU where there is one.",
        ) from error


def sees_gpu(device: str) -> bool:
    """Whether batches will run on a GPU, without loading torch, which takes seconds."""
    if device != "auto":
        return isinstance(device, str) and device != "cpu"
    return driver_sees_gpu()


@contextlib.contextmanager
def loading(
    name: str,
    requirement: str = "the model must be a complete one of a known kind",
    remedy: str = "Copy or download it again, or use another.",
) -> Iterator[None]:
    """Turn a library's errors about files that cannot be loaded into one clear message."""
    try:
        with _quiet_transformers():
            yield
    except (UniprotoError, MemoryError):
        raise
    except ImportError as error:
        if error.name is None:
            raise
        raise InputFileError(
            f"{name}: the model needs the package {error.name!r}, which is not installed. "
            f"Install it with: pip install {error.name}"
        ) from error
    except Exception as error:  # libraries may raise anything for a damaged file
        # The first line, and the second if the first only introduces it.
        reason = " ".join(str(error).replace(":\n", ": ").split("\n")[0].split())[:240]
        raise InputFileError(
            f"{name}: {requirement}. It could not be loaded ({reason or type(error).__name__}). "
            f"{remedy}"
        ) from error


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Silence a library while it loads a model; problems are checked for here."""
    try:
        from transformers.utils import logging
    except ImportError:
        yield
        return
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load_network(load: Any, folder: Path, name: str) -> tuple[Any, bool]:
    """A network with all its weights; the flag says whether those of a pooler were there too."""
    network, info = load(
        str(folder), local_files_only=True, trust_remote_code=False, output_loading_info=True
    )
    missing = set(info["missing_keys"])
    spare = {key for key in missing if "pooler" in key}
    require_weights(name, missing - spare)
    return network.float().eval(), not spare


def require_weights(name: str, missing: Collection[str]) -> None:
    """Refuse a model that lacks weights, which would be initialised at random."""
    if missing:
        raise InputFileError(
            f"{name}: the model must have all its weights. {len(missing)} of them are missing, "
            f"such as {min(missing)!r}. Get the model again, or use another."
        )
