"""What a Trainer must be like for a selection to go in front of it: refused before it trains."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from uniproto.errors import InvalidInputError
from uniproto.lm.batches.config import SelectionConfig
from uniproto.lm.batches.pools import columns_of, no_source_column
from uniproto.lm.features.layers import unwrapped, value_projection
from uniproto.lm.features.losses import require_language_model

# TRL's names of packing that leaves a border, and positions that restart, between two examples.
_WITH_BORDERS = ("bfd", "bfd_split", "bfd-requeue")


def require_packable(args: Any, config: SelectionConfig) -> None:
    """Refuse packing that leaves nothing to choose from; before TRL packs, which takes time."""
    if not getattr(args, "packing", False):
        return
    strategy = getattr(args, "packing_strategy", None)
    if strategy not in _WITH_BORDERS:
        raise InvalidInputError(
            "packing=True needs packing_strategy='bfd', which keeps examples apart, not "
            f"{strategy!r}; or pass padding_free=True in place of it."
        )
    if config.mode == "source":
        raise InvalidInputError(
            "packing=True drops the column of sources. Pass mode='batch', or padding_free=True in "
            "place of it."
        )
    if config.usual_features == "embedding":
        raise InvalidInputError(
            "packing=True leaves no single texts to embed. Pass features='gradient', or "
            "padding_free=True in place of it."
        )


def require_supported(trainer: Any) -> None:
    """Refuse a model, arguments or data that the selection of a Trainer cannot work with."""
    config = trainer.selection
    if config.usual_loss == "example":
        _require_example_loss(trainer)
    causal = config.usual_loss == "example" or (config.scores and config.loss_fn is None)
    if causal and trainer.model is not None:
        require_language_model(unwrapped(trainer.model))
    for kind in ("fsdp", "deepspeed"):
        if getattr(trainer, f"is_{kind}_enabled", False) and config.name not in ("random", "full"):
            raise InvalidInputError(
                f"{kind} may shard the model, whose examples then cannot be scored. Use plain data "
                "parallelism (torchrun), or method='random'."
            )
    is_flat = getattr(trainer, "padding_free", False)
    if (config.mode == "source" or is_flat) and dispatches(trainer):
        raise InvalidInputError(
            "Every process must read its own batches. Pass "
            "TrainingArguments(accelerator_config={'dispatch_batches': False})."
        )
    columns = columns_of(trainer.train_dataset) if trainer.train_dataset is not None else None
    if config.mode == "source" and columns is not None and config.source_column not in columns:
        raise no_source_column(config.source_column, columns)
    if config.differentiates and trainer.model is not None:
        value_projection(unwrapped(trainer.model), config.layer)


def _require_example_loss(trainer: Any) -> None:
    """Refuse what the loss that counts examples equally would silently replace."""
    others = {
        "compute_loss_func": getattr(trainer, "compute_loss_func", None) is not None,
        "label_smoothing_factor": bool(getattr(trainer.args, "label_smoothing_factor", 0)),
        "the loss of routers": bool(
            getattr(getattr(trainer.model, "config", None), "output_router_logits", False)
        ),
        "a loss_type other than nll": getattr(trainer.args, "loss_type", "nll") != "nll",
    }
    for name, present in others.items():
        if present:
            raise own_loss(name)


def own_loss(received: str) -> InvalidInputError:
    """The refusal of a Trainer whose loss is not a mean over tokens."""
    return InvalidInputError(
        f"loss='example' would replace {received}. Pass SelectionConfig(loss='token')."
    )


def dispatches(trainer: Any) -> bool:
    """Whether one process reads the batches of all: only tensors travel to the others."""
    found = trainer.accelerator.dispatch_batches
    if found is None:
        found = isinstance(trainer.train_dataset, IterableDataset)
    return bool(found) and trainer.args.world_size > 1
