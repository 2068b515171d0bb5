"""The settings of the selection inside a training run, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uniproto.errors import InvalidInputError, require_int, require_name
from uniproto.lm.batches.methods import BATCH_METHODS, BatchMethod, as_batch_method
from uniproto.lm.batches.selector import MODES, BatchSelector
from uniproto.lm.features.language import MOMENTS
from uniproto.methods import Method
from uniproto.runtime.settings import setting

FEATURES = ("gradient", "zeroth-order", "adapters", "embedding")
LOSSES = ("example", "token")


@dataclass(frozen=True)
class SelectionConfig:
    """Which examples of every pool to train on.

    Args:
        method: `uniproto`, `colm`, `colm-raw`, `greats`, `gradnorm`, `maxloss`, `sbert`,
            `kmedoids`, `random`, `full`, or a method object with its options (see
            `BatchSelector`).
        mode: `batch`, one selection over the pool, or `source`, one inside each source.
        pool: examples per device and micro-batch that are looked at: the batch size of the data
            loader, in place of `per_device_train_batch_size`.
        keep: how many of them are trained on. A pool with fewer usable examples (the last one of
            an epoch, or after NaN) is used whole. Where a row of the data holds several examples
            (TRL's packing), `pool` and `keep` count rows, and `keep / pool` is the share of their
            examples that is trained on.
        source_column: the column of the training data that names an example's source. Needed with
            `mode="source"`; otherwise only for the log, where the data have it.
        loss: what a step minimises: `example`, the mean of the chosen examples' losses, so that
            all count equally; `token`, the Trainer's own, a mean over their answer tokens, in
            which long answers count more. Default: `example` with `uniproto`, otherwise `token`.
        metric, bandwidth, budgets: as in `BatchSelector`.
        keep_small: take small sources whole, with every method: names of sources; or a share of
            the training data (0.01) below which a source is small; or, decided in every pool,
            True or a number of examples as in `BatchSelector`. Default: True for `colm`.
        coordinates: compare only this many coordinates, as in `BatchSelector`.
        features: `gradient` (last block's value projection), `zeroth-order` (the same by two
            forward passes), `adapters` (all LoRA layers) or `embedding` (of texts). Default:
            `zeroth-order` for `colm`, `embedding` for `sbert`, otherwise `gradient`.
        adam_aligned: divide gradients by the optimizer's √v. Default: True, but False for `greats`
            and `colm-raw`.
        moments: which v: `optimizer`, that of the last step; `pool`, with the pool's mean gradient
            in it, as the paper prints it (and the factor m for `gradnorm`); `example`, with each
            example's own in m and v. Default: `example` for `colm`, otherwise `optimizer`.
        align_after: plain gradients before this many steps. A young v is the square of one or two
            gradients, and nearly all of g/√v lies in the few coordinates that had almost none.
        layer: the linear layer to differentiate, where the value projection is not found.
        loss_fn: for models other than causal language models, `loss_fn(model, batch)`: each
            example's loss, a tensor (examples,). Needs `layer`, except with `maxloss`; the Trainer
            keeps its own training loss.
        width: the largest number of feature dimensions.
        score_batch_size: examples per scoring pass (default: the whole pool; `greats`: 8).
        micro_batch: examples per forward and backward pass of the chosen ones, where memory is
            short. The gradient is the same sum, in another order of additions.
        anchors: how many random training examples serve `greats` as validation, at every step.
        text_column: what is embedded: a column, or several joined by a blank line. Default:
            `text`, or `instruction` and `output`, or the tokens read back by the tokenizer.
        embedding_model: as in `uniproto.features.embed_text`.
        embeddings: one row per training example, in place of embedding texts.
        measure_cost: log the selection's transport cost next to that of random choices.
        seed: of random draws; default that of the training arguments.

    >>> SelectionConfig(method="uniproto", mode="source", pool=32, keep=8).usual_features
    'gradient'
    """

    method: str | Method = setting(
        "uniproto",
        "how examples are chosen (docs/training.md)",
        choices=lambda: tuple(BATCH_METHODS),
    )
    mode: str = setting("batch", "from the pool, or per source", choices=MODES)
    pool: int = setting(128, "examples looked at, per device")
    keep: int = setting(64, "examples trained on, per device")
    source_column: str = "source"
    metric: str | None = setting(
        None, "compare by euclidean, cosine, l1, dot (by method)", metavar="NAME"
    )
    bandwidth: float | str | None = setting(
        None, "bandwidth of rbf: a number, or e.g. 0.25median (auto)", metavar="SIGMA", parse=str
    )
    loss: str | None = setting(None, "weigh examples or tokens equally (by method)", choices=LOSSES)
    budgets: str | Mapping[Hashable, int] = "proportional"
    keep_small: bool | int | float | Collection[Hashable] | None = None
    coordinates: int | None = setting(None, "compare the largest coordinates only (by method)")
    features: str | None = setting(None, f"{'/'.join(FEATURES)} (by method)", metavar="NAME")
    adam_aligned: bool | None = setting(None, "scale gradients like Adam's steps (by method)")
    moments: str | None = setting(None, "Adam's moments (by method)", choices=MOMENTS)
    align_after: int = setting(8, "steps before gradients are aligned")
    layer: str | None = setting(None, "the layer to differentiate (last value projection)")
    loss_fn: Callable[[Any, Any], Any] | None = field(default=None, repr=False, compare=False)
    width: int | None = setting(None, "largest number of feature dimensions (all)")
    score_batch_size: int | None = setting(None, "examples per scoring pass (the pool; greats: 8)")
    micro_batch: int | None = setting(None, "chosen examples per forward and backward pass (all)")
    anchors: int = setting(8, "greats: number of validation examples")
    text_column: str | tuple[str, ...] | None = None
    embedding_model: str | None = setting(
        None, "sbert: the model that embeds (all-MiniLM-L6-v2)", metavar="MODEL"
    )
    embeddings: Any = field(default=None, repr=False, compare=False)
    measure_cost: bool = True
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("pool", "keep", "anchors"):
            require_int(name, getattr(self, name))
        require_int("align_after", self.align_after, least=0)
        for name in ("width", "score_batch_size", "micro_batch"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name))
        # Checks the method and its options.
        self.selector(self.keep, seed=0 if self.seed is None else self.seed)
        if self.keep > self.pool:
            raise InvalidInputError(
                f"must not exceed pool={self.pool} (got {self.keep}).", parameter="keep"
            )
        for name, known in (("features", FEATURES), ("loss", LOSSES), ("moments", MOMENTS)):
            if getattr(self, name) is not None:
                require_name(name, getattr(self, name), known)
        if isinstance(self.keep_small, float) and not 0 < self.keep_small < 1:
            raise InvalidInputError(
                f"{self.keep_small} must lie between 0 and 1 as a share of the data "
                "(0.01 for 1 %).",
                parameter="keep_small",
            )
        if self.loss_fn is not None and self.name == "greats":
            raise InvalidInputError(
                "is 'greats', which takes no loss_fn: it compares gradients of language models.",
                parameter="method",
            )
        if self.loss_fn is not None and self.differentiates and self.layer is None:
            raise InvalidInputError(
                "With a loss_fn, name the linear layer to differentiate, such as "
                "layer='classifier'."
            )
        wrong = {"greats": FEATURES[1:], "gradnorm": ("embedding",)}.get(self.name, ())
        if self.usual_features in wrong:
            raise InvalidInputError(
                f"must be left out with method={self.method!r}, which needs gradients.",
                parameter="features",
            )

    @property
    def chooses(self) -> BatchMethod:
        """The method, with its requirements and defaults."""
        return as_batch_method(self.method)

    @property
    def name(self) -> str:
        return self.chooses.name

    @property
    def usual_features(self) -> str:
        """The given features, or the method's default; the same holds for the properties below."""
        return self.features or self.chooses.features

    @property
    def usual_metric(self) -> str:
        return self.metric or self.chooses.metric

    @property
    def aligned(self) -> bool:
        return self.chooses.aligned if self.adam_aligned is None else self.adam_aligned

    @property
    def usual_moments(self) -> str:
        return self.moments or self.chooses.moments

    @property
    def usual_loss(self) -> str:
        return self.loss or (self.chooses.loss if self.loss_fn is None else "token")

    @property
    def scores(self) -> bool:
        """Whether the model looks at every example of a pool."""
        return bool(self.chooses.needs) and self.usual_features != "embedding"

    @property
    def differentiates(self) -> bool:
        """Whether it does so by gradients, not by losses alone."""
        return self.scores and "features" in self.chooses.needs

    def selector(
        self,
        keep: int,
        seed: int,
        small: Collection[Hashable] | None = None,
    ) -> BatchSelector:
        """The selector that makes the choice; `small` are the sources of a share's `keep_small`."""
        return BatchSelector(
            self.method,
            self.mode,
            keep,
            metric=self.metric,
            bandwidth=self.bandwidth,
            budgets=self.budgets,
            keep_small=(small or ()) if isinstance(self.keep_small, float) else self.keep_small,
            coordinates=self.coordinates,
            seed=seed,
        )
