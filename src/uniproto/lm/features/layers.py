"""Which layer to differentiate: the value projection of the last block, with its LoRA or without.

A layer's per-example weight gradients are sums of outer products over tokens. With inputs a_t,
output gradients δ_t and y = W a + s·B A a:

    ∇W = Σ_t δ_t a_tᵀ        ∇B = Σ_t δ_t (s A a_t)ᵀ        ∇A = Σ_t (s Bᵀ δ_t) a_tᵀ

so that a layer's inputs and output gradients are all that has to be captured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uniproto.errors import InvalidInputError

_OWN_LAYER = ("v_proj", "value", "value_proj", "v", "wv", "to_v", "v_lin")
_FUSED = ("qkv_proj", "c_attn", "Wqkv", "query_key_value", "qkv", "att_proj")
_UNKNOWN_ORDER = ("codegen", "chatglm")  # of Q, K and V in their fused layers
_IN_EACH_HEAD = "query_key_value"  # q, k, v of one head, then of the next


@dataclass(frozen=True)
class ParameterPart:
    """The part of a parameter that gradients are taken of."""

    parameter: nn.Parameter
    index: tuple[Any, ...]

    def of(self, values: Tensor) -> Tensor:
        """The same part of something shaped like the parameter, as one float32 vector."""
        return _precise(values.detach()[self.index]).reshape(-1)


@dataclass(frozen=True)
class Projection:
    """A linear layer, with LoRA or without, and which of its outputs are meant (`rows`).

    Parameters with outputs of their own (the weight, LoRA's B) are cut to those rows. LoRA's A
    serves all outputs of a fused layer: its gradient is the whole one, from Q, K and V.
    Biases are not included.
    """

    name: str
    module: nn.Module
    rows: Any

    @property
    def adapters(self) -> list[str]:
        """The active LoRA adapters of this layer; none where it is a plain layer."""
        held = getattr(self.module, "lora_A", None)
        if held is None or getattr(self.module, "disable_adapters", False):
            return []
        active = getattr(self.module, "active_adapters", list(held))
        return [adapter for adapter in active if adapter in held]

    @property
    def base(self) -> Any:
        """The layer itself, below its LoRA."""
        return getattr(self.module, "base_layer", self.module)

    def parts(self) -> list[ParameterPart]:
        """The parameters that features are gradients of: A and B of each adapter, or W."""
        if not self.adapters:
            taken = (slice(None), self.rows) if _is_transposed(self.base) else (self.rows,)
            return [ParameterPart(self.base.weight, taken)]
        module: Any = self.module
        found = []
        for adapter in self.adapters:
            found.append(ParameterPart(module.lora_A[adapter].weight, (slice(None),)))
            found.append(ParameterPart(module.lora_B[adapter].weight, (self.rows,)))
        return found

    def factors(self, inputs: Tensor, gradients: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each part's per-example gradients, as pairs: Σ_t left_tᵀ right_t, shaped like the part.

        `inputs` (examples, tokens, d_in), `gradients` (examples, tokens, d_out) of the outputs.
        """
        a, delta = _precise(inputs), _precise(gradients)
        if not self.adapters:
            if _is_transposed(self.base):
                return [(a, delta[..., self.rows])]
            return [(delta[..., self.rows], a)]
        module: Any = self.module
        pairs = []
        for adapter in self.adapters:
            down = module.lora_A[adapter].weight.detach().to(a.dtype)
            up = module.lora_B[adapter].weight.detach().to(a.dtype)
            scaling = module.scaling[adapter]
            pairs.append((scaling * (delta @ up), a))
            pairs.append((delta[..., self.rows], scaling * (a @ down.T)))
        return pairs


def unwrapped(model: Any) -> Any:
    """The model inside DistributedDataParallel and torch.compile; PEFT's wrapper stays."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            break
    return model


def language_model(model: Any) -> Any:
    """The causal language model itself, below PEFT's wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def text_config(model: Any) -> Any:
    """The model's configuration; of one that also sees or hears, that of its language model."""
    config: Any = getattr(language_model(model), "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def value_projection(model: nn.Module, layer: str | None = None) -> Projection:
    """The value projection of the model's last block, or the linear layer named by hand."""
    if layer is not None:
        name, module = _named(model, layer)
        rows = _value_rows(model, name, module) if _last(name) in _FUSED else slice(None)
    else:
        block_name, block = _last_block(model)
        found = [each for each in _linear_layers(block) if _is_value(each[0])]
        if len(found) != 1:
            raise _no_value_projection(block_name, block, [name for name, _ in found])
        name, module = f"{block_name}.{found[0][0]}", found[0][1]
        rows = _value_rows(model, name, module)
    return _checked(Projection(name, module, rows))


def lora_projections(model: nn.Module) -> list[Projection]:
    """Every layer with an active LoRA adapter, whole."""
    every = [
        Projection(name, module, slice(None))
        for name, module in model.named_modules()
        if hasattr(module, "lora_A") and isinstance(getattr(module, "base_layer", None), nn.Module)
    ]
    found = [_checked(each) for each in every if each.adapters and _is_linear(each.module)]
    if not found:
        raise InvalidInputError(
            "must have LoRA layers, whose gradients are compared. Wrap it with "
            "peft.get_peft_model.",
            parameter="model",
        )
    return found


def _checked(projection: Projection) -> Projection:
    module: Any = projection.module
    variants = getattr(module, "lora_variant", None) or {}
    dora = getattr(module, "use_dora", None) or {}
    for adapter in projection.adapters:
        if adapter in variants or dora.get(adapter):
            raise InvalidInputError(
                f"{projection.name} uses a variant of LoRA such as DoRA. Train with plain LoRA, or "
                "name a layer without it: layer='…'."
            )
    if projection.adapters and getattr(module, "merged", False):
        raise InvalidInputError(
            f"{projection.name} has merged LoRA weights. Call model.unmerge_adapter() first."
        )
    return projection


def _last_block(model: nn.Module) -> tuple[str, nn.Module]:
    """The topmost decoder block: the end of the list that is as long as the model is deep."""
    depth = getattr(text_config(model), "num_hidden_layers", None)
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) > 0
    ]
    lists = [each for each in lists if len(each[1]) == depth] or lists
    lists = [each for each in lists if any(map(_is_linear, each[1][-1].modules()))]
    if not lists:
        raise InvalidInputError(
            f"{type(model).__name__} has no blocks in a torch ModuleList. Name the layer to "
            "differentiate: layer='path.of.the.linear.layer'."
        )
    name, blocks = max(lists, key=lambda each: len(each[1]))
    return f"{name}.{len(blocks) - 1}", blocks[-1]


def _linear_layers(block: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The linear layers of a block; one with LoRA counts once, as a whole."""
    wrapped: list[str] = []
    for name, module in block.named_modules():
        if not _is_linear(module) or any(name.startswith(f"{outer}.") for outer in wrapped):
            continue
        wrapped.append(name)
        yield name, module


def _is_linear(module: nn.Module) -> bool:
    base: Any = getattr(module, "base_layer", module)
    if isinstance(base, nn.Embedding) or not isinstance(base, nn.Module):
        return False
    return _outputs(base) is not None and getattr(base, "weight", None) is not None


def _outputs(base: Any) -> int | None:
    """How many outputs a linear layer has (GPT-2's Conv1D calls them nf)."""
    width = getattr(base, "nf", getattr(base, "out_features", None))
    return width if isinstance(width, int) else None


def _is_transposed(base: Any) -> bool:
    """Whether the weight is stored inputs first, as GPT-2's Conv1D does."""
    return hasattr(base, "nf") and not hasattr(base, "out_features")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_value(name: str) -> bool:
    if any(word in name.lower() for word in ("cross", "encoder_attn", "encdec")):
        return False
    return _last(name) in _OWN_LAYER or _last(name) in _FUSED


def _value_rows(model: nn.Module, name: str, module: nn.Module) -> Any:
    """Which outputs of the layer are values: all of them, or a share of a fused layer."""
    if _last(name) in _OWN_LAYER:
        return slice(None)
    config = text_config(model)
    base: Any = getattr(module, "base_layer", module)
    outputs = _outputs(base) or 0
    heads = getattr(config, "num_attention_heads", 0)
    groups = _value_heads(config, heads)
    size = outputs // (heads + 2 * groups) if heads else 0
    kind = getattr(config, "model_type", "")
    if not size or size * (heads + 2 * groups) != outputs or kind in _UNKNOWN_ORDER:
        raise InvalidInputError(
            f"{name} with {outputs} outputs ({kind or 'an unknown kind of model'}) cannot be split "
            "into queries, keys and values. Name another linear layer of the last block: "
            "layer='…'."
        )
    if _last(name) == _IN_EACH_HEAD or kind == "gpt_bigcode":
        # Groups of (queries, one key, one value): the value is the last of each group.
        grouped = torch.arange(outputs).reshape(groups, -1, size)
        return grouped[:, -1].reshape(-1)
    return slice(outputs - groups * size, outputs)


def _value_heads(config: Any, heads: int) -> int:
    """How many heads have values of their own."""
    if hasattr(config, "new_decoder_architecture") and not config.new_decoder_architecture:
        return 1 if config.multi_query else heads  # Falcon's first kind
    if getattr(config, "model_type", "") == "gpt_bigcode":
        return 1 if config.multi_query else heads
    for key in ("num_key_value_heads", "num_kv_heads"):
        if isinstance(getattr(config, key, None), int):
            return int(getattr(config, key))
    return heads


def _named(model: nn.Module, layer: str) -> tuple[str, nn.Module]:
    """The linear layer of that name; prefixes added by wrappers may be omitted."""
    every = dict(_linear_layers(model))
    found = [name for name in every if name == layer or name.endswith(f".{layer}")]
    if len(found) == 1:
        return found[0], every[found[0]]
    if found:
        remedy = f"Several layers end with it: {', '.join(found[:6])}. Pass a longer name."
    else:
        last = _last(layer)
        near = [name for name in every if _last(name) == last] or list(every)
        remedy = f"Its linear layers include {', '.join(near[-6:])}."
    raise InvalidInputError(
        f"{layer!r} must name one linear layer of the model. {remedy}", parameter="layer"
    )


def _no_value_projection(name: str, block: nn.Module, found: list[str]) -> InvalidInputError:
    linear = [f"{name}.{inner}" for inner, _ in _linear_layers(block)]  # one at least
    return InvalidInputError(
        f"The last block, {name} ({type(block).__name__}), must have one value projection, but has "
        f"{'several: ' + ', '.join(found) if found else 'none of the known names'}. Name the layer "
        f"to differentiate: layer={linear[0]!r}. The linear layers of that block: "
        f"{', '.join(linear)}."
    )


def _precise(values: Tensor) -> Tensor:
    """In float32 at least; float64 stays."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


# --- state that scoring must not change -----------------------------------------------------------


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Restore the model, its gradients and every random state after scoring.

    Inside, the model is in evaluation mode: dropout (LoRA's too) is off and gradient
    checkpointing is inactive, since both act in training mode only. Restored on exit: each module's
    own train/eval flag, `.grad` and `requires_grad` of every parameter, the buffers, and the
    random states of Python, NumPy, torch and the model's accelerators. The optimizer is never
    touched.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train()
    >>> with preserve_state(model):
    ...     drawn = torch.rand(3), model[1].training
    >>> drawn[1], model[1].training, bool((torch.rand(3) == drawn[0]).all())
    (False, True, True)
    """
    modes = [(module, module.training) for module in model.modules()]
    parameters = [(each, each.grad, each.requires_grad) for each in model.parameters()]
    buffers = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (a model may draw)
    with ExitStack() as around:
        around.enter_context(_forked_rng(model))
        if hasattr(torch.compiler, "set_stance"):  # compiled modules would not run our hooks
            around.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            model.eval()
            yield
        finally:
            for module, training in modes:
                module.training = training
            for parameter, gradient, requires_grad in parameters:
                parameter.requires_grad_(requires_grad)
                parameter.grad = gradient
            for held, before in buffers:
                held.update(before)
            # Autocast keeps the weights it has cast; those cast without a graph would leave the
            # next training step inside the same autocast region without gradients.
            torch.clear_autocast_cache()
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _forked_rng(model: nn.Module) -> AbstractContextManager[None]:
    """Keeps the random states of torch, on the CPU and on the model's accelerators."""
    used = {each.device for each in model.parameters()}
    used = {device for device in used if device.type not in ("cpu", "meta")}
    kind = next((device.type for device in used), "cuda")
    return torch.random.fork_rng([device.index for device in used], device_type=kind)
