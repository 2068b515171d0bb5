"""Where a model is: a folder, a .gguf file, or a name on the Hugging Face hub, asked once."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, MissingExtraError

_PATIENCE = 10.0  # seconds the hub has to answer


def find_model(name: str) -> tuple[str, dict[str, Any]]:
    """What to pass to `from_pretrained`: a place, and options with which nobody asks in vain.

    What looks like a path and is not there is refused at once. Any other name is asked for on the
    hub, a single time; where the hub cannot be reached, its cache on this machine will do.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "small-model").mkdir()
    >>> find_model(f"{folder}/small-model") == (
    ...     f"{folder}/small-model", {"local_files_only": True})
    True
    >>> try:
    ...     find_model(f"{folder}/smal-model")
    ... except InputFileError as error:
    ...     print(str(error).replace(str(folder), "…"))
    …/smal-model: the model must be a folder, a .gguf file or a name on the Hugging Face hub. There
    is no such folder or file. Did you mean '…/small-model'?
    """
    path = Path(name).expanduser()
    if path.exists():
        if name.endswith(".gguf"):
            return str(path.parent), {"gguf_file": path.name, "local_files_only": True}
        return str(path), {"local_files_only": True}
    if _is_path(name):
        raise InputFileError(
            f"{name}: the model must be a folder, a .gguf file or a name on the Hugging Face hub. "
            f"There is no such folder or file. {_nearest(path) or 'Check the path.'}"
        )
    return name, _asked_on_the_hub(name)


def _is_path(name: str) -> bool:
    """Whether this can be nothing but a path: hub names are `name` or `owner/name`."""
    return (
        name.startswith((".", "/", "~"))
        or name.endswith(".gguf")
        or "\\" in name
        or name.count("/") > 1
        or ("/" in name and Path(name).parent.is_dir())
    )


def _nearest(path: Path) -> str | None:
    """A question about the name most like the one that is missing, where there is one."""
    missing = path
    while not missing.parent.is_dir():
        missing = missing.parent
    try:
        names = [beside.name for beside in missing.parent.iterdir()]
    except OSError:
        return None
    near = difflib.get_close_matches(missing.name, names, n=1, cutoff=0.6)
    if not near:
        return None
    there = missing.with_name(near[0]) / path.relative_to(missing)
    return f"Did you mean {str(there)!r}?" if there.exists() else None


def _asked_on_the_hub(name: str) -> dict[str, Any]:
    """Ask for a model once. transformers asks for one file after another, and again for each."""
    try:
        import huggingface_hub as hub
    except ModuleNotFoundError as error:  # pragma: no cover
        raise MissingExtraError("Fine-tuning", "train") from error
    try:
        hub.HfApi().model_info(name, timeout=_PATIENCE)
    except (OSError, ValueError, RuntimeError, hub.errors.HTTPError) as error:
        try:
            cached = hub.try_to_load_from_cache(name, "config.json")
        except ValueError:  # no name that the hub would give
            cached = None
        if isinstance(cached, str):
            return {"local_files_only": True}
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise InputFileError(
            f"{name}: the model must be a folder, a .gguf file or a name on the Hugging Face hub. "
            "It is no folder here and not in the hub's cache on this machine, and the hub, asked "
            f"once, did not give it ({reason}). {_nearest(Path(name)) or 'Check the name.'} "
            "Without a network, pass the folder of a model you have; "
            f"'hf download {name} --local-dir DIR' makes one where there is a network."
        ) from error
    return {}
