"""Each example's own loss.

The loss is the mean over the answer tokens. Token t is predicted from position t − 1, labels of
−100 do not count, and only positions with a label pass through the language model's head, in
chunks: the logits of all tokens are never held at once. Before the first use of a model, the loss
of one example is compared with the model's own, which may differ (as for masked language models).

For other models, a function `loss_fn(model, batch)` returns each example's loss.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from uniproto.errors import InvalidInputError, UniprotoError, require_int
from uniproto.lm.features.layers import language_model, preserve_state, text_config, unwrapped

NO_LABEL = -100
_LOGITS_AT_ONCE = 2**28  # bytes, in float32
_FULL_ENOUGH = 0.7  # the least share of tokens that are not padding for a batch not to be split
_SMALLEST_PIECE = 16
_CLOSE = {torch.float64: 1e-4, torch.float32: 1e-3}  # relative tolerance of the comparison
_CLOSE_IN_HALF = 2e-2
_USUAL_INPUTS = ("input_ids", "attention_mask")
_compared: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # models that passed the comparison
LossFunction = Callable[[Any, Mapping[str, Any]], Tensor]
OTHER_LOSS = (
    "Pass loss_fn=…, a function of model and batch that returns each example's loss, and name a "
    "layer=…; or choose without losses: method='random' or features='embedding'."
)


def example_losses(
    model: Any,
    batch: Mapping[str, Any],
    *,
    score_batch_size: int | None = None,
    loss_fn: LossFunction | None = None,
) -> Tensor:
    """The loss of each example, (examples,); NaN for one without an answer token.

    A forward pass without dropout, which leaves the model unchanged.
    """
    model = unwrapped(model)
    with preserve_state(model), torch.inference_mode(False), torch.no_grad():
        return forward_losses(model, batch, score_batch_size, loss_fn)


def forward_losses(
    model: nn.Module,
    batch: Mapping[str, Any],
    size: int | None,
    loss_fn: LossFunction | None = None,
) -> Tensor:
    """The losses, to be called inside `preserve_state` and without a graph."""
    found, places = [], []
    for inputs, labels, rows in micro_batches(model, batch, size, loss_fn):
        found.append(run_model(model, inputs, labels, loss_fn).losses()[0])
        places.append(rows)
    return in_pool_order(found, places)


def micro_batches(
    model: nn.Module,
    batch: Mapping[str, Any],
    size: int | None,
    loss_fn: LossFunction | None = None,
) -> Iterator[tuple[dict[str, Any], Any, Tensor]]:
    """The inputs, labels and rows of one micro-batch after another.

    Examples of similar length are put together, and padding that none of them needs is removed.
    `size=None` takes all examples at once, or a quarter of them if much of the batch is padding.
    With a `loss_fn`, micro-batches are consecutive rows of all tensors.
    """
    if loss_fn is not None:
        device = next((each.device for each in model.parameters()), torch.device("cpu"))
        moved = {
            key: value.to(device) if isinstance(value, Tensor) else value
            for key, value in batch.items()
        }
        examples = batch_size(batch)
        size = examples if size is None else require_int("score_batch_size", size)
        for rows in torch.arange(examples).split(size):
            yield chosen_rows(moved, examples, rows), None, rows
        return
    inputs, labels, lengths = _known_inputs(model, batch)
    examples = len(labels)
    if size is None:
        wasteful = lengths.float().mean() < _FULL_ENOUGH * labels.shape[1]
        size = max(_SMALLEST_PIECE, examples // 4) if wasteful else examples
    size = require_int("score_batch_size", size, too_small="None chooses by the padding.")
    order = torch.arange(examples, device=labels.device)
    if size < examples:
        order = lengths.argsort(stable=True)
    for rows in order.split(size):
        yield trimmed_rows(inputs, rows, lengths), labels[rows, : int(lengths[rows].max())], rows


def trimmed_rows(inputs: Mapping[str, Any], rows: Tensor, lengths: Tensor) -> dict[str, Any]:
    """The same batch with these examples only, without padding that none of them needs."""
    padded, longest = (len(rows), inputs["input_ids"].shape[1]), int(lengths[rows].max())
    return {
        key: value[:, :longest] if isinstance(value, Tensor) and value.shape == padded else value
        for key, value in chosen_rows(inputs, len(lengths), rows).items()
    }


def chosen_rows(inputs: Mapping[str, Any], size: int, rows: Any) -> dict[str, Any]:
    """The same batch with these examples only, in this order."""
    rows = torch.as_tensor(rows)
    chosen: dict[str, Any] = {}
    for key, value in inputs.items():
        if isinstance(value, Tensor) and value.ndim and len(value) == size:
            chosen[key] = value[rows.to(value.device)]
        elif isinstance(value, list | tuple) and len(value) == size:
            chosen[key] = [value[row] for row in rows.tolist()]
        else:
            chosen[key] = value
    return chosen


def batch_size(batch: Mapping[str, Any]) -> int:
    """The number of examples: the rows of input_ids, or else of the first tensor with rows.

    >>> batch_size({"pixels": torch.zeros(3, 8), "label": torch.zeros(3)})
    3
    """
    rows = [value for value in batch.values() if isinstance(value, Tensor) and value.ndim]
    if isinstance(batch.get("input_ids"), Tensor):
        rows = [batch["input_ids"]]
    if not rows:
        raise InvalidInputError(
            "must return tensors of one row per example, such as input_ids, not "
            f"{', '.join(map(str, batch)) or 'nothing'}. Use one such as "
            "transformers.DataCollatorForSeq2Seq.",
            parameter="data_collator",
        )
    return len(rows[0])


@dataclass(frozen=True)
class ModelRun:
    """The end of a forward pass, with a graph back to the layers of interest.

    `end` are the last hidden states of a language model, before its `head`; without a head, the
    losses from a `loss_fn`. An example's loss depends on its own rows only, so that the gradient of
    their sum holds the gradients of all.
    """

    end: Tensor
    labels: Any = None
    head: Head | None = None

    def losses(self, *, differentiate: bool = False) -> tuple[Tensor, Tensor]:
        """The losses, and with `differentiate` their gradient by the end."""
        if self.head is None:
            return self.end.detach(), torch.ones_like(self.end)
        return answer_losses(self.end, self.labels, self.head, differentiate=differentiate)

    def gradients(self, outputs: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The losses, and the gradient of each example's loss by the outputs."""
        losses, by_end = self.losses(differentiate=True)
        found = torch.autograd.grad(self.end, outputs, by_end, materialize_grads=True)
        return losses, found


def run_model(
    model: nn.Module, inputs: dict[str, Any], labels: Any, loss_fn: LossFunction | None = None
) -> ModelRun:
    """Run the model on a micro-batch, up to its head."""
    if loss_fn is None:
        hidden, head = before_the_head(model, inputs)
        return ModelRun(hidden, labels, head)
    losses = loss_fn(model, inputs)
    expected = (batch_size(inputs),)
    if not isinstance(losses, Tensor) or tuple(losses.shape) != expected:
        raise InvalidInputError(
            f"must return one loss per example, a tensor of shape {expected}. Take no mean "
            "over the batch: reduction='none'.",
            parameter="loss_fn",
        )
    return ModelRun(losses.to(torch.promote_types(losses.dtype, torch.float32)))


def in_pool_order(found: list[Tensor], places: list[Tensor]) -> Tensor:
    """Results of micro-batches, in the order of the pool."""
    together = torch.cat(found)
    return together[torch.cat(places).argsort().to(together.device)]


def used_lengths(inputs: Mapping[str, Any], labels: Tensor) -> Tensor:
    """The length of each example without padding, which has neither mask nor label."""
    used = labels != NO_LABEL
    mask = inputs.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.shape != labels.shape:
        return torch.full_like(labels[:, 0], labels.shape[1])  # padding cannot be recognised
    columns = torch.arange(1, labels.shape[1] + 1, device=labels.device)
    return ((used | (mask != 0)) * columns).amax(dim=1).clamp(min=2)


def require_language_model(model: nn.Module) -> None:
    """Refuse a model that is not a causal language model, and needs a `loss_fn`."""
    core = language_model(model)
    if getattr(getattr(core, "config", None), "is_encoder_decoder", False):
        raise InvalidInputError(
            f"{type(core).__name__} is no causal language model (decoder only). {OTHER_LOSS}"
        )
    if _output_head(core) is None or not hasattr(core, "get_input_embeddings"):
        raise InvalidInputError(
            f"{type(core).__name__} is no causal language model: it has no output head. "
            f"{OTHER_LOSS}"
        )


def _output_head(core: Any) -> Any:
    return core.get_output_embeddings() if hasattr(core, "get_output_embeddings") else None


def require_causal_loss(model: nn.Module, batch: Mapping[str, Any]) -> None:
    """Refuse a model whose own loss of an example is not that of a causal language model."""
    _known_inputs(model, batch)


def _known_inputs(
    model: nn.Module, batch: Mapping[str, Any]
) -> tuple[dict[str, Any], Tensor, Tensor]:
    """The inputs, labels and lengths of a batch for a causal language model."""
    require_language_model(model)
    ids, labels = batch["input_ids"], batch["labels"]
    if ids.ndim != 2 or not ids.numel() or ids.shape != labels.shape:
        raise InvalidInputError(
            "batch must have input_ids and labels of one shape (examples, tokens), not "
            f"{tuple(ids.shape)} and {tuple(labels.shape)}."
        )
    inputs, labels = _inputs(model, batch)
    lengths = used_lengths(inputs, labels)
    _require_known_loss(model, inputs, labels, lengths)
    return inputs, labels, lengths


def _require_known_loss(
    model: nn.Module, inputs: dict[str, Any], labels: Tensor, lengths: Tensor
) -> None:
    """Compare one example's loss with the model's own, once per model.

    Otherwise another kind of head, labels that are not shifted (masked language models) or a loss
    with further terms would silently give wrong scores.
    """
    core = language_model(model)
    answered = (labels[:, 1:] != NO_LABEL).any(dim=1)
    if core in _compared or not answered.any():
        return
    # The shortest with an answer: the logits of all its tokens are computed.
    row = lengths.masked_fill(~answered, int(lengths.max()) + 1).argmin()[None]
    piece, own_labels = trimmed_rows(inputs, row, lengths), labels[row, : int(lengths[row])]
    with torch.no_grad():
        hidden, head = before_the_head(model, piece)
        ours = float(answer_losses(hidden, own_labels, head, differentiate=False)[0])
        theirs = _own_loss(model, piece, own_labels)
    close = _CLOSE_IN_HALF if head.autocast[2] else _CLOSE.get(hidden.dtype, _CLOSE_IN_HALF)
    if np.isfinite([ours, theirs]).all() and abs(ours - theirs) > close * max(1e-2, abs(theirs)):
        raise InvalidInputError(
            f"{type(core).__name__} does not have the loss of a causal language model, a mean over "
            f"labels other than -100: for one example it is {theirs:.4g}, not {ours:.4g}. "
            f"{OTHER_LOSS}"
        )
    _compared.add(core)


def _own_loss(model: nn.Module, inputs: dict[str, Any], labels: Tensor) -> float:
    """The loss that the model itself returns, without that of routers."""
    core = language_model(model)
    output: Any = None
    if "labels" in inspect.signature(type(core).forward).parameters:
        output = model(**inputs, labels=labels)
    loss = output.get("loss") if isinstance(output, Mapping) else None
    if loss is None:
        raise InvalidInputError(f"{type(core).__name__} returns no loss for labels. {OTHER_LOSS}")
    auxiliary = output.get("aux_loss")
    share = getattr(text_config(core), "router_aux_loss_coef", 0.0) or 0.0
    return float(loss) - (0.0 if auxiliary is None else share * float(auxiliary))


def _inputs(model: nn.Module, batch: Mapping[str, Any]) -> tuple[dict[str, Any], Tensor]:
    """The arguments of the model's forward, and the labels, on the model's device."""
    core = language_model(model)
    accepted = inspect.signature(type(core).forward).parameters
    device = core.get_input_embeddings().weight.device
    inputs = {
        key: value.to(device) if isinstance(value, Tensor) else value
        for key, value in batch.items()
        # A forward(**kwargs), such as a wrapper's, does not list the usual names.
        if (key in accepted or key in _USUAL_INPUTS) and key != "labels"
    }
    if "use_cache" in accepted:
        inputs["use_cache"] = False
    return inputs, batch["labels"].to(device)


@dataclass(frozen=True)
class Head:
    """The language model's head: from the last hidden states to logits."""

    module: Any
    scale: float
    cap: float | None
    autocast: tuple[str, Any, bool]
    vocabulary: int = 0

    def logits(self, hidden: Tensor) -> Tensor:
        kind, dtype, enabled = self.autocast
        with torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False):
            logits = self.module(hidden)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.scale != 1.0:  # avoid a pass over the logits
            logits = logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def before_the_head(model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Head]:
    """Run the model, its head on one token only; return the hidden states and the head."""
    core = language_model(model)
    module = _output_head(core)
    seen: list[tuple[Tensor, tuple[str, Any, bool]]] = []

    def keep(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = arguments[0]
        kind = hidden.device.type
        enabled = torch.is_autocast_enabled(kind)
        seen.append((hidden, (kind, torch.get_autocast_dtype(kind) if enabled else None, enabled)))
        return (hidden[:1, :1].detach(), *arguments[1:])

    handle = module.register_forward_pre_hook(keep)
    try:
        output = model(**inputs)
    finally:
        handle.remove()
    tokens = inputs["input_ids"].shape
    if len(seen) != 1 or seen[0][0].shape[:2] != tokens:
        shapes = [tuple(hidden.shape) for hidden, _ in seen]
        raise UniprotoError(
            f"The head of {type(core).__name__} ran on {shapes or 'nothing'}, not once on the "
            f"hidden states of {tuple(tokens)} tokens. Select by other features, such as sentence "
            "embeddings."
        )
    hidden, autocast = seen[0]
    logits = output["logits"] if isinstance(output, Mapping) else output[0]
    return hidden, Head(module, *_after_the_head(core), autocast, vocabulary=logits.shape[-1])


def _after_the_head(core: Any) -> tuple[float, float | None]:
    """Scaling of logits (Cohere, Granite) and their soft cap (Gemma)."""
    config = text_config(core)

    def number(key: str) -> float | None:
        value = getattr(config, key, None)
        return float(value) if isinstance(value, int | float) and value else None

    scale = (number("logit_scale") or 1.0) * (number("lm_head_multiplier") or 1.0)
    return scale / (number("logits_scaling") or 1.0), number("final_logit_softcapping")


def answer_losses(
    hidden: Tensor, labels: Tensor, head: Head, *, differentiate: bool
) -> tuple[Tensor, Tensor]:
    """Losses (examples,), and with `differentiate` each one's gradient by its own hidden states."""
    labels = labels.to(hidden.device)
    answered = labels[:, 1:] != NO_LABEL
    counts = answered.sum(dim=1)
    rows, columns = answered.nonzero(as_tuple=True)
    targets = labels[:, 1:][rows, columns]
    states = hidden.detach()
    gradient = torch.zeros_like(states) if differentiate else states.new_zeros(0)
    precision = torch.promote_types(hidden.dtype, torch.float32)
    losses = torch.zeros(answered.shape, dtype=precision, device=hidden.device)
    tokens = max(1, _LOGITS_AT_ONCE // (4 * max(1, head.vocabulary)))
    for first in range(0, len(rows), tokens):
        row, column = rows[first : first + tokens], columns[first : first + tokens]
        state = states[row, column].requires_grad_(differentiate)
        with torch.set_grad_enabled(differentiate):
            logits = head.logits(state[None])[0]
            loss = functional.cross_entropy(
                logits, targets[first : first + tokens], reduction="none"
            )
        losses[row, column] = loss.detach().to(precision)
        if differentiate:
            share = counts[row].to(loss.dtype).reciprocal()
            gradient[row, column] = torch.autograd.grad(loss, state, share)[0]
    return losses.sum(dim=1) / counts, gradient
