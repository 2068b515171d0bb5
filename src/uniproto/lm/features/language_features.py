"""Features of examples, computed by a language model: `uniproto.lm.gradients`, `hidden_states`.

The gradient of an example says how it would change the model, so examples of the same kind of task
are close together, whatever words they use. The selection inside a training run uses the same code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from uniproto.data.examples import as_example, example_columns
from uniproto.errors import InputFileError, InvalidInputError, asking, known_keywords
from uniproto.features.embedded import (
    TRUNCATED,
    Embedded,
    ModelOfTexts,
    batch_size_of,
    checked_vectors,
    embed,
)
from uniproto.features.files import Items
from uniproto.features.models import (
    find_model,
    loading,
    model_identity,
    require_digest,
    require_packages,
    sees_gpu,
    torch_device,
)
from uniproto.lm.features.adam_moments import Moments, adam_steps, read_moments
from uniproto.lm.features.gradient_features import gradient_features, outer_sums, projected
from uniproto.lm.features.inner_products import differentiated, layer_pairs
from uniproto.lm.features.language import (
    NO_ANSWER,
    POOLING,
    TEMPLATE,
    LanguageFeatures,
    what_is_wrong_with,
)
from uniproto.lm.features.layers import (
    lora_projections,
    preserve_state,
    unwrapped,
    value_projection,
)
from uniproto.lm.features.losses import before_the_head, micro_batches
from uniproto.lm.features.tokens import PaddingCollator, encoded
from uniproto.lm.models import (
    ADAPTER,
    load_config,
    load_model,
    load_tokenizer,
    padding_token,
    with_adapter,
)

_VERSION = 1  # increase when the vectors change
_PURPOSE, _EXTRA = "Looking at examples with a language model", "train"
# Examples at a time, without and with a GPU.
_BATCH = {"value": (8, 64), "lora": (4, 8), "hidden": (8, 64), "position": (8, 64)}
# Passed on to `features.embedded`.
OPTIONS = ("batch_size", "device", "cache", "on_error", "progress", "model_digest", "spread")


@partial(known_keywords, also=OPTIONS)
def gradients(
    rows: Iterable[Any],
    *,
    model: str,
    adapter: str | os.PathLike[str] | None = None,
    layer: str = "value",
    width: int = 1024,
    prompt: str | None = None,
    answer: str | None = None,
    messages: str | None = None,
    template: str = TEMPLATE,
    max_length: int = 512,
    bf16: bool = False,
    **options: Any,
) -> Embedded:
    """Turn examples into the gradients they would train a language model with.

    Each vector is the gradient of the mean loss of an example's answer by one layer or several,
    randomly projected to `width` numbers. Compare them by cosine.

    Args:
        rows: a `datasets.Dataset` or any sequence of rows (mappings), of (prompt, answer) pairs,
            of conversations (lists of messages with role and content) or of plain texts.
        model: a causal language model: a folder, a .gguf file or a name on the Hugging Face hub.
        adapter: a folder of LoRA weights to put on the model.
        layer: `value`, the value projection of the last block; the name of another linear layer;
            `lora`, all LoRA layers of the adapter, as in LESS; or `adam`, the same with each
            gradient replaced by the step that Adam would take, using the moments in the adapter's
            folder (optimizer.pt), which a training run saves with its checkpoints.
        width: the largest number of dimensions.
        prompt, answer, messages: the columns of rows. Default: those with the usual names.
        template: the prompt, with `{instruction}` in it, or "chat" for the model's own template.
        max_length: tokens per example; longer ones are cut as 'uniproto finetune' cuts them.
        bf16: bfloat16 arithmetic, for a GPU.
        options: `batch_size`, examples at a time (by kind and device); and `device`, `cache`,
            `on_error`, `progress`, `model_digest` and `spread` as for `embed_text`.

    Examples without an answer token are skipped and listed in `left_out`, whatever `on_error` is.
    """
    features = LanguageFeatures.of_gradients(
        layer,
        adapter=adapter,
        width=width,
        template=template,
        max_length=max_length,
        bf16=bf16,
    )
    return embed_examples(_examples(rows, prompt, answer, messages), features, model, **options)


@partial(known_keywords, also=OPTIONS)
def hidden_states(
    rows: Iterable[Any],
    *,
    model: str,
    adapter: str | os.PathLike[str] | None = None,
    pooling: str = "mean",
    prompt: str | None = None,
    answer: str | None = None,
    messages: str | None = None,
    template: str = TEMPLATE,
    max_length: int = 512,
    bf16: bool = False,
    **options: Any,
) -> Embedded:
    """Turn examples into the mean of a language model's last hidden states over their tokens.

    The arguments are those of `gradients`; only forward passes are made. `pooling="position"`
    weights the i-th token by i, as RDS+ does: later ones have seen more of the example.
    """
    features = LanguageFeatures.of_hidden_states(
        pooling, adapter=adapter, template=template, max_length=max_length, bf16=bf16
    )
    return embed_examples(_examples(rows, prompt, answer, messages), features, model, **options)


def _examples(
    rows: Any, prompt: str | None, answer: str | None, messages: str | None
) -> Iterable[Any]:
    """Convert rows to examples, by their columns if these are named."""
    if isinstance(rows, Items):
        return rows
    if isinstance(rows, str | bytes):
        raise InvalidInputError("must be a list of rows, not one text.", parameter="rows")
    names = getattr(rows, "column_names", None)
    if names is None and isinstance(rows, Sequence) and len(rows) and isinstance(rows[0], dict):
        names = list(rows[0])
    columns = None if names is None else example_columns(names, prompt, answer, messages)
    return [as_example(row, columns) for row in rows]


def embed_examples(
    examples: Iterable[Any],
    features: LanguageFeatures,
    model: str,
    *,
    batch_size: int | None = None,
    device: str = "auto",
    model_digest: str | None = None,
    **options: Any,
) -> Embedded:
    """The vectors of examples, computed or taken from the cache."""
    listed: Any = examples if isinstance(examples, Sized) else list(examples)
    return embed(
        listed,
        len(listed),
        lambda: LanguageModelFeatures(model, features, batch_size, device, model_digest),
        "examples",
        check=LanguageModelFeatures,
        **options,
    )


class LanguageModelFeatures(ModelOfTexts):
    """A language model for `features.embedded`; it is loaded when a vector must be computed."""

    what_is_wrong = staticmethod(what_is_wrong_with)
    expected = NO_ANSWER
    content = staticmethod(lambda example: json.dumps(example).encode())

    def __init__(
        self,
        name: str,
        features: LanguageFeatures,
        batch_size: int | None,
        device: str,
        digest: str | None = None,
    ) -> None:
        require_packages(("torch", "transformers"), _PURPOSE, _EXTRA)
        self.name, self.features, self.device = name, features, device
        self.batch_size = batch_size_of(batch_size, _BATCH[features.kind][sees_gpu(device)])
        place = find_model(name, download=digest is None)
        self.place, identity = str(place), model_identity(place)
        if features.adapter is not None:
            identity += f" {_adapter_identity(features.adapter)}"
        self.identity = f"language {_VERSION} {features.described()} {identity}"
        require_digest(self.identity, name, digest)
        if features.kind == "value":
            require_layer(self.place, name, features.layer)
        self._network: Any = None
        self._tokenizer: Any = None
        self._moments: dict[Any, Moments] | None = None

    def inputs(self, items: list[Any]) -> list[tuple[Any, int, int]]:
        self._load_tokenizer()
        tokens = list(encoded(items, self._tokenizer, self.features.template, self._longest))
        values = [one.inputs() for one in tokens]
        sizes = [len(one.tokens) for one in tokens]
        flags = [TRUNCATED if one.length > self._longest else 0 for one in tokens]
        return list(zip(values, sizes, flags, strict=True))

    def vectors(self, inputs: Sequence[Any]) -> NDArray[np.float32]:
        self._load()
        batch = PaddingCollator(padding_token(self._tokenizer))(list(inputs))
        if self.features.kind in POOLING.values():
            by_position = self.features.kind == "position"
            rows = _mean_hidden_states(self._network, batch, by_position)
        elif self.features.kind == "lora":
            rows = _lora_gradients(self._network, batch, self.features.width, self._moments)
        else:
            rows = gradient_features(
                self._network,
                batch,
                layer=self.features.layer,
                width=self.features.width,
                score_batch_size=len(inputs),
            ).features
        return checked_vectors(rows.float().cpu().numpy(), len(inputs), self.name)

    def _load_tokenizer(self) -> None:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.place)
            self._longest = tokens_read(self.place, self.features.max_length)

    def _load(self) -> None:
        if self._network is not None:
            return
        self._load_tokenizer()
        network, _ = load_model(self.place, self.features.bf16)
        if self.features.adapter is not None:
            adapter = Path(self.features.adapter).expanduser()
            remedy = f"Name the model it was made for: {asking('model=', 'model', 'MODEL')}."
            network = with_adapter(network, adapter, remedy, trainable=True)
            if self.features.adam:
                self._moments = read_moments(self.features.adapter, network)
        self._network = network.to(torch_device(self.device)).eval()


def tokens_read(name: str, max_length: int) -> int:
    """The number of tokens of an example that a model reads, limited by its context."""
    config = load_config(name).get_text_config()
    return min(max_length, getattr(config, "max_position_embeddings", None) or max_length)


def require_layer(place: str, name: str, layer: str | None) -> None:
    """Refuse a layer that the model does not have, before its weights are read."""
    if place.endswith(".gguf"):  # its architecture is known only once it is read
        return
    config = load_config(place)
    with loading(name), torch.device("meta"):
        from transformers import AutoModelForCausalLM

        skeleton = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    value_projection(skeleton, layer)


def _adapter_identity(adapter: str | os.PathLike[str]) -> str:
    folder = Path(adapter).expanduser()
    if not (folder / ADAPTER).is_file():
        raise InputFileError(
            f"{adapter}: no {ADAPTER} in this folder. Name the adapter that 'uniproto finetune' "
            "wrote: OUT/model, or a checkpoint."
        )
    return model_identity(folder)


def _mean_hidden_states(network: Any, batch: dict[str, Any], by_position: bool) -> Any:
    """The last hidden states, averaged over the tokens of each example."""
    network = unwrapped(network)
    with preserve_state(network), torch.inference_mode(False), torch.no_grad():
        ((inputs, _, _),) = micro_batches(network, batch, len(batch["labels"]))
        hidden, _ = before_the_head(network, inputs)
        weights = inputs["attention_mask"].to(hidden.device).unsqueeze(-1)
        if by_position:
            weights = weights * weights.cumsum(dim=1)
        return (hidden.float() * weights).sum(dim=1) / weights.sum(dim=1)


def _lora_gradients(
    network: Any, batch: dict[str, Any], width: int, moments: dict[Any, Moments] | None
) -> Any:
    """The gradients with respect to all LoRA parameters, projected to one row per example."""
    network = unwrapped(network)
    projections = lora_projections(network)
    with preserve_state(network), torch.inference_mode(False):
        ((inputs, labels, _),) = micro_batches(network, batch, len(batch["labels"]))
        seen, _ = differentiated(network, projections, inputs, labels)
        total: Any = None
        place = 0
        for projection, pairs in zip(projections, layer_pairs(projections, seen), strict=True):
            for part, (left, right) in zip(projection.parts(), pairs, strict=True):
                rows = outer_sums(left, right)
                if moments is not None:
                    rows = adam_steps(rows, moments[part.parameter])
                # The sketches of all parts add up to a sketch of the whole gradient. Short parts
                # are padded with zeros, as a part that fits into `width` would not be sketched.
                if (lacking := width + 1 - rows.shape[1]) > 0:
                    rows = torch.nn.functional.pad(rows, (0, lacking))
                sketch = projected(rows, width, place)
                total = sketch if total is None else total + sketch
                place += 1
    return total
