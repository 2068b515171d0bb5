"""The model to train: found, loaded with its tokenizer, and given adapters.

A model is a folder, a .gguf file or a name on the Hugging Face hub. No code that comes with a model
is ever run.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, MissingExtraError, UniprotoError, invalid
from uniproto.lm.finetune.settings import FinetuneSettings

try:
    import safetensors
    import torch
    import transformers
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Fine-tuning", "train") from error

_PATIENCE = 10.0  # seconds the hub has to answer
ADAPTER = "adapter_config.json"  # in the folder of an adapter
_OLD_NAME = "`is_gradient_checkpointing` is deprecated"  # peft asks transformers by it
_LONGEST_REASON = 240  # characters of what a loader says
_LORA_WEIGHT = re.compile(r"\.lora_(embedding_)?[AB]\b")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
# By config.model_type. Phi-2 has separate projections, Phi-3 fused ones.
_TARGETS = {
    "phi": ("q_proj", "k_proj", "v_proj", "fc1", "fc2"),
    "phi3": ("qkv_proj", "gate_up_proj", "down_proj"),
    "stablelm": _ATTENTION,
    "gpt2": ("c_attn",),
    "gpt_neox": ("query_key_value",),
    "falcon": ("query_key_value",),
}


def load_model(name: str, half: bool = False, quantize: str | None = None) -> tuple[Any, Any]:
    """A model and its tokenizer: a folder, a .gguf file, or a name on the Hugging Face hub.

    `quantize="4bit"` loads its weights in 4 bits (NF4), for QLoRA.
    """
    place, options = find_model(name)
    _refuse_adapter(name, Path(place))
    options["trust_remote_code"] = False  # a model is data; its own code is never run
    dtype = torch.bfloat16 if half else torch.float32
    transformers.utils.logging.disable_progress_bar()  # its bars are about files, not about work
    model: Any
    with report_damage(
        name,
        Path(place, options.get("gguf_file", "")),
        "the model must be a causal language model with its tokenizer, in a folder or on the hub",
        "Check what is there, or the network; copy or download a damaged file again.",
    ):
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options)
        if quantize is not None:
            options["quantization_config"] = transformers.BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=dtype,
            )
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            place, dtype=dtype, output_loading_info=True, **options
        )
        model, found = loaded
    if missing := sorted(found["missing_keys"]):  # they would be random numbers
        raise InputFileError(
            f"{name}: the model must have all its weights. {len(missing)} of them are missing, "
            f"such as {missing[0]!r}. Get the model again, or use another."
        )
    if "gguf_file" in options:  # plain numbers now; marked as quantised, they could not be saved
        model.hf_quantizer, model.quantization_method, model.is_quantized = None, None, False
        del model.config.quantization_config
    model.config.use_cache = False
    return model, tokenizer


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model alone."""
    place, options = find_model(name)
    with report_damage(
        name,
        Path(place, options.get("gguf_file", "")),
        "the model must come with its tokenizer",
        "Check what is there; copy or download a damaged file again.",
    ):
        return transformers.AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options)


def _refuse_adapter(name: str, folder: Path) -> None:
    """Transformers would load it with its model, and the next adapter take its place."""
    if (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        raise InputFileError(
            f"{name}: the model must be a whole one. It is an adapter, which belongs to one. Name "
            "that model, or one that the adapter was merged into (uniproto finetune --merge)."
        )


def with_adapter(model: Any, adapter: Path, remedy: str, *, trainable: bool = False) -> Any:
    """The model with LoRA weights from a folder, which must all have their place in it.

    An adapter of a model with more layers, or with fewer, would otherwise be put on in part.
    """
    if find_spec("peft") is None:
        raise MissingExtraError("An adapter", "train")
    import peft

    name = model.config.name_or_path
    with (
        report_damage(str(adapter), adapter, f"the adapter must fit the model {name}", remedy),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", _OLD_NAME, FutureWarning)
        warnings.filterwarnings("error", "Found missing adapter keys")
        adapted = peft.PeftModel.from_pretrained(model, str(adapter), is_trainable=trainable)
        saved = peft.load_peft_weights(str(adapter), device="cpu")
        placed = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
        spare = sorted(key for key in saved if _LORA_WEIGHT.search(key) and key not in placed)
        if spare:
            raise InputFileError(
                f"{adapter}: the adapter must fit the model {name}. That has no place for "
                f"{len(spare)} of its {len(saved)} weights, such as {spare[0]!r}. {remedy}"
            )
    return adapted


def padding_token(tokenizer: Any) -> int:
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


# --- where a model is ----------------------------------------------------------------------------


def find_model(name: str) -> tuple[str, dict[str, Any]]:
    """The folder or hub name to pass to `from_pretrained`, and the options for it.

    A path that does not exist is refused at once. Any other name is looked up on the hub, once;
    where the hub cannot be reached, its cache on this machine serves.

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
    return name, _look_up_on_the_hub(name)


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
    """'Did you mean' the most similar name there is, if any."""
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


def _look_up_on_the_hub(name: str) -> dict[str, Any]:
    """Ask the hub once; transformers would ask for one file after another, and retry each."""
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


# --- files that are damaged ----------------------------------------------------------------------


@contextmanager
def report_damage(name: str, place: Path, requirement: str, remedy: str) -> Iterator[None]:
    """Raise an InputFileError for whatever goes wrong while files of `place` are loaded.

    Loaders of damaged files raise almost anything: errors of safetensors, pickle, zip and JSON,
    IndexError, RuntimeError. The message names the damaged file where one is found.
    """
    try:
        yield
    except (UniprotoError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # The first line, and the second where the first only announces it.
        reason = " ".join(str(error).replace(":\n", ": ").split("\n")[0].split())[:_LONGEST_REASON]
        reason = reason or type(error).__name__
        damaged = next((each for each in _files(place) if is_damaged(each)), None)
        if damaged is not None:
            reason = f"{damaged.name} is truncated or damaged: {reason}"
        raise InputFileError(
            f"{name}: {requirement}. It could not be loaded ({reason}). {remedy}"
        ) from error


def _files(place: Path) -> list[Path]:
    """The files there that can be read."""
    if not os.access(place, os.R_OK):
        return []
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return [file for file in files if file.is_file() and os.access(file, os.R_OK)]


def is_damaged(file: Path) -> bool:
    """Whether a file of weights, states or settings is certainly incomplete.

    >>> import tempfile
    >>> config = Path(tempfile.mkdtemp(), "config.json")
    >>> _ = config.write_text('{"model_type": "lla')
    >>> is_damaged(config)
    True
    """
    match file.suffix:
        case ".json":
            return not _parses(json.loads, file.read_bytes())
        case ".safetensors":
            return not _parses(_open_safetensors, file)
        case ".pt" | ".pth" | ".bin":  # torch.save writes zip archives, which end in their index
            return not zipfile.is_zipfile(file)
        case ".gguf":
            with file.open("rb") as content:
                return content.read(4) != b"GGUF"
    return False


def _open_safetensors(file: Path) -> None:
    with safetensors.safe_open(str(file), framework="pt"):
        pass  # opening compares the header with the length of the file


def _parses(read: Callable[[Any], object], content: Any) -> bool:
    try:
        read(content)
    except (ValueError, OSError, safetensors.SafetensorError):
        return False
    return True


# --- LoRA ----------------------------------------------------------------------------------------


def with_lora(model: Any, settings: FinetuneSettings) -> Any:
    """The model with LoRA adapters, which alone are trained."""
    import peft

    if settings.quantize:
        model = peft.prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=settings.gradient_checkpointing
        )
    layers = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.lora_r,
        lora_alpha=settings.usual_lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=lora_targets(model, settings.lora_targets),
        fan_in_fan_out=getattr(model.config, "model_type", "") == "gpt2",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _OLD_NAME, FutureWarning)
        return peft.get_peft_model(model, layers)


def require_quantisation(settings: FinetuneSettings) -> None:
    """Refuse --quantize where bitsandbytes, which does it, is not installed."""
    if settings.quantize and find_spec("bitsandbytes") is None:
        raise invalid(
            "--quantize",
            "needs the package bitsandbytes, which is not installed",
            settings.quantize,
            "Run: pip install bitsandbytes; or leave the option out.",
        )


def lora_targets(model: Any, targets: str | None = None) -> list[str]:
    """The layers LoRA adapts: the given ones (`a,b,c`), or the usual ones of the architecture.

    `phi` means the paper's choice for Phi models, whichever of them this is. Where the
    architecture is not listed, attention projections.
    """
    kind = getattr(getattr(model, "config", None), "model_type", "")
    if targets and targets != "phi":
        wanted = [part.strip() for part in targets.split(",") if part.strip()]
    elif targets == "phi" and kind not in ("phi", "phi3"):
        wanted = [*_ATTENTION[:3], "gate_proj", "up_proj", "down_proj", "fc1", "fc2"]
        wanted = [name for name in wanted if _has(model, name)]
    else:
        wanted = list(_TARGETS.get(kind, _ATTENTION))
    missing = [name for name in wanted if not _has(model, name)]
    if missing or not wanted:
        present = sorted(
            {
                name.rpartition(".")[2]
                for name, module in model.named_modules()
                if getattr(module, "weight", None) is not None and module.weight.ndim == 2
            }
        )
        raise invalid(
            "--lora-targets",
            f"must name layers of the model ({', '.join(present)})",
            ", ".join(missing) or "none",
            "Name those to adapt: --lora-targets q_proj,v_proj.",
        )
    return wanted


def _has(model: Any, name: str) -> bool:
    return any(each.rpartition(".")[2] == name for each, _ in model.named_modules())
