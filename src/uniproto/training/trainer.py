"""The Hugging Face Trainer with a selection in front of every step.

    from uniproto.training import SelectionConfig, SelectionTrainer

    trainer = SelectionTrainer(
        model=model, args=TrainingArguments(...), train_dataset=data,
        selection=SelectionConfig(method="uniproto", mode="source", pool=128, keep=64),
    )
    trainer.train()

`SelectionMixin` goes in front of any other Trainer: `class X(SelectionMixin, SFTTrainer)`. It uses
the Trainer's own hooks, and leaves the training loop alone.
"""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import MissingExtraError, UniprotoError, invalid
from uniproto.training.config import SelectionConfig
from uniproto.training.inputs import (
    Gram,
    as_features,
    as_numbers,
    finite_examples,
    finite_rows,
    nonzero,
)
from uniproto.training.losses import preserve_state
from uniproto.training.pools import (
    ROWS,
    NumberedRows,
    Pool,
    PoolCollator,
    Window,
    as_pool,
    chosen_rows,
    columns_of,
    no_source_column,
    pieces,
    require_within_context,
)
from uniproto.training.scoring import Scorer, Scores

try:
    import torch
    from torch import distributed
    from transformers import Trainer
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Selection inside a training run", "train") from error


_SMALLEST_RATE = 1e-12  # a warm-up begins at 0, where GREATS would have nothing to compare


class SelectionMixin:
    """Trains every step on the chosen examples of a larger pool.

    `last_batch` is the micro-batch trained on last, `last_selection` its rows in the pool;
    `last_batches` and `last_selections` are those of the whole last step, one per accumulated
    micro-batch. What is logged beside the loss: `selected/SOURCE` (examples per step),
    `selection/seconds` and `selection/share` of the step's time, `selection/cost` and
    `selection/random_cost` (of the step's last micro-batch), `selection/kept`, `selection/pool`,
    and `selection/left_out`: examples with NaN or infinity in loss or gradient, never chosen.
    """

    selection: SelectionConfig
    last_batches: list[dict[str, Any]]
    last_selections: list[NDArray[np.int64]]

    def __init__(
        self, model: Any = None, args: Any = None, *others: Any, selection: Any = None, **named: Any
    ) -> None:
        if selection is None:
            selection = SelectionConfig()
        if not isinstance(selection, SelectionConfig):
            raise invalid(
                "selection",
                "must be a SelectionConfig",
                type(selection).__name__,
                "Pass SelectionConfig(method='uniproto', pool=128, keep=64).",
            )
        self.selection = selection
        self.last_batches, self.last_selections = [], []
        self._window = Window()
        self._embeddings: Any = None
        if args is not None:  # a copy: the caller's arguments may serve another trainer
            args = copy.copy(args)
            args.per_device_train_batch_size = selection.pool
        super().__init__(model, args, *others, **named)  # type: ignore[call-arg]
        trainer: Any = self
        if args is None:
            trainer.args.per_device_train_batch_size = selection.pool
            trainer._train_batch_size = trainer.args.train_batch_size
        _require_supported(trainer)

    @property
    def last_batch(self) -> dict[str, Any] | None:
        """The selected examples that were trained on last."""
        return self.last_batches[-1] if self.last_batches else None

    @property
    def last_selection(self) -> NDArray[np.int64] | None:
        """Where they stood in their pool."""
        return self.last_selections[-1] if self.last_selections else None

    # --- the Trainer's hooks ---------------------------------------------------------------------

    def get_train_dataloader(self) -> Any:
        """Pools, with each example's source (and row, for embeddings) beside the inputs."""
        trainer: Any = self
        config = self.selection
        trainer._set_signature_columns_if_needed()
        original = trainer.data_collator, trainer._signature_columns, trainer.train_dataset
        _, columns, dataset = original
        trainer._signature_columns = [*columns, config.source_column, ROWS]
        trainer.data_collator = self._pool_collator(
            required=config.mode == "source", adds_metadata=not _dispatches(trainer)
        )
        if config.usual_features == "embedding":
            self._embed(dataset)
            trainer.train_dataset = NumberedRows(dataset)
        try:
            return super().get_train_dataloader()  # type: ignore[misc]
        finally:
            trainer.data_collator, trainer._signature_columns, trainer.train_dataset = original

    def get_eval_dataloader(self, *given: Any, **named: Any) -> Any:
        """Evaluation data may have the source column, too; collators that would fail lose it."""
        trainer: Any = self
        original = trainer.data_collator
        trainer.data_collator = self._pool_collator(required=False, adds_metadata=False)
        try:
            return super().get_eval_dataloader(*given, **named)  # type: ignore[misc]
        finally:
            trainer.data_collator = original

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, *others: Any, **named: Any
    ) -> tuple[list[Any], Any]:
        """Fetch the pools of one step, choose from each, and count what was chosen.

        The count scales the loss. Counted on the pools, as the Trainer would have it, the loss of
        the chosen examples would be too small.
        """
        trainer: Any = self
        self._window.begin(trainer.state.global_step)
        batches, _ = super().get_batch_samples(  # type: ignore[misc]
            epoch_iterator, num_batches, *others, **named
        )
        began = time.perf_counter()
        pools = [as_pool(batch, self.selection.source_column) for batch in batches]
        batches, selections = [], []
        with preserve_state(trainer.model):
            for place, pool in enumerate(pools):
                rows = self._choose(pool, place)
                batches.append(chosen_rows(pool.inputs, pool.size, rows))
                selections.append(rows)
        self._window.selection_seconds += time.perf_counter() - began
        if batches:
            self.last_batches, self.last_selections = batches, selections
        device = others[0] if others else named.get("device", trainer.args.device)
        return batches, trainer._get_num_items_in_batch(batches, device)

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """One forward and backward pass, or several on parts of the batch where memory is short."""
        trainer: Any = self
        most = self.selection.micro_batch
        if most is None or len(inputs["input_ids"]) <= most:
            return super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        if num_items_in_batch is None:
            raise invalid(
                "micro_batch",
                "must be left out with a model whose loss is not a sum over counted tokens",
                most,
                "Lower 'keep' and accumulate gradients instead.",
            )
        parts = pieces(inputs, most)
        total: Any = 0.0
        for place, part in enumerate(parts):
            is_last = place == len(parts) - 1
            with nullcontext() if is_last else trainer.accelerator.no_sync(model=model):
                total = total + super().training_step(  # type: ignore[misc]
                    model, part, num_items_in_batch
                )
        return total

    def log(self, logs: dict[str, float], *others: Any, **named: Any) -> None:
        """The Trainer's log, with the selection's numbers beside the loss."""
        trainer: Any = self
        if "loss" in logs and self._window.steps:
            logs.update(self._window.summary(trainer.args.world_size))
            self._window = Window()
        super().log(logs, *others, **named)  # type: ignore[misc]

    def _pool_collator(self, required: bool, adds_metadata: bool) -> PoolCollator:
        """The user's collator; a collator of transformers or TRL is not shown the sources."""
        trainer: Any = self
        collator = trainer.data_collator
        return PoolCollator(
            collator,
            self.selection.source_column,
            required=required,
            adds_metadata=adds_metadata,
            sees_all=not trainer.args.remove_unused_columns
            and type(collator).__module__.partition(".")[0] not in ("transformers", "trl"),
        )

    # --- choosing --------------------------------------------------------------------------------

    def _choose(self, pool: Pool, place: int) -> NDArray[np.int64]:
        """Rows of the pool, in the order picked."""
        trainer: Any = self
        config = self.selection
        if config.mode == "source" and pool.sources is None:
            raise no_source_column(config.source_column, list(pool.inputs))
        require_within_context(trainer.model, pool)
        step = trainer.state.global_step * trainer.args.gradient_accumulation_steps + place
        seed = (self._seed, step, trainer.args.process_index)
        scores = self._scorer(pool, seed)
        keep = config.keep * max(1, trainer.args.n_gpu)
        usable = _usable(scores, pool.size, config.usual_metric)
        if not usable.any():
            raise UniprotoError(
                f"Every pool must hold an example with a finite loss and gradient. All {pool.size} "
                f"of step {trainer.state.global_step + 1} have NaN or infinity (or no answer "
                "token). Lower the learning rate if training has diverged; look at the labels if "
                "this is the first step."
            )
        count = int(usable.sum())
        selector = config.selector(
            min(keep, count),
            seed=_mixed(self._seed, trainer.args.process_index),
            mode="batch" if count <= keep else None,  # all of them, whatever the quotas
        )
        selector.calls = step
        selector.learning_rate = max(_SMALLEST_RATE, float(trainer.optimizer.param_groups[0]["lr"]))
        rows = selector(
            scores.features,
            losses=scores.losses,
            sources=pool.sources if selector.mode == "source" else None,
            validation_features=scores.validation_features,
        )
        assert selector.last is not None
        self._window.add(selector.last if config.measure_cost else None, pool, rows, usable)
        return rows

    @property
    def _seed(self) -> int:
        trainer: Any = self
        given = self.selection.seed
        return int(trainer.args.seed if given is None else given)

    @property
    def _scorer(self) -> Scorer:
        trainer: Any = self
        return Scorer(
            self.selection,
            trainer.model,
            trainer.optimizer,
            embedding_of=lambda rows: self._embeddings[rows],
            draw_anchors=self._anchors,
        )

    def _anchors(self, seed: tuple[int, ...]) -> dict[str, Any]:
        """Random training examples as validation, for GREATS."""
        trainer: Any = self
        data = trainer.train_dataset
        if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise invalid(
                "train_dataset",
                "must have rows that can be drawn, for the anchors of 'greats'",
                type(data).__name__,
                "Use a data set with a length, or another method.",
            )
        random = np.random.default_rng((*seed, 7))
        rows = random.choice(len(data), min(self.selection.anchors, len(data)), replace=False)
        columns = trainer._signature_columns
        examples = [data[int(row)] for row in rows]
        if trainer.args.remove_unused_columns and isinstance(examples[0], Mapping):
            examples = [{key: each[key] for key in each if key in columns} for each in examples]
        batch = PoolCollator(trainer.data_collator, self.selection.source_column, False)(examples)
        return trainer._prepare_inputs(as_pool(batch, self.selection.source_column).inputs)

    def _embed(self, dataset: Any) -> None:
        """Vectors of all training examples, once; on several processes the first computes them."""
        from uniproto.training.scoring import embeddings_of

        trainer: Any = self
        if self._embeddings is None:
            with trainer.args.main_process_first(desc="embedding the training texts"):
                self._embeddings = embeddings_of(
                    dataset, self.selection, getattr(trainer, "processing_class", None)
                )


class SelectionTrainer(SelectionMixin, Trainer):
    """transformers' Trainer, which trains on the chosen examples of a larger pool."""


def _usable(scores: Scores, size: int, metric: str) -> NDArray[np.bool_]:
    """Which examples have finite numbers and, for cosines, a direction."""
    fine = np.ones(size, np.bool_)
    features = None if scores.features is None else as_features(scores.features, False)
    if isinstance(features, Gram):
        fine &= finite_examples(features.pool)
        if features.validation is not None:
            fine &= finite_rows(features.validation)
    elif features is not None:
        fine &= finite_rows(features)
    if features is not None and metric == "cosine":
        fine &= nonzero(features)
    if scores.losses is not None:
        fine &= np.isfinite(as_numbers(scores.losses, "losses", 1))
    return fine


def _mixed(seed: int, process: int) -> int:
    """A seed of its own for every process; that of the first is the seed itself."""
    return (
        seed if process == 0 else int(np.random.SeedSequence((seed, process)).generate_state(1)[0])
    )


def _dispatches(trainer: Any) -> bool:
    """Whether one process reads the batches of all: only tensors travel to the others."""
    dispatches = trainer.accelerator.dispatch_batches
    if dispatches is None:
        dispatches = isinstance(trainer.train_dataset, torch.utils.data.IterableDataset)
    return bool(dispatches) and trainer.args.world_size > 1


def _require_supported(trainer: Any) -> None:
    config = trainer.selection
    for kind in ("fsdp", "deepspeed"):
        if getattr(trainer, f"is_{kind}_enabled", False) and config.name not in ("random", "full"):
            raise invalid(
                "args",
                "must keep the model whole on every device, for its examples to be scored",
                f"{kind}, which may shard it",
                "Use plain data parallelism (torchrun), or method='random'.",
            )
    if config.mode == "source" and _dispatches(trainer):
        raise invalid(
            "args",
            "must let every process read its own batches, for their sources to come with them",
            "one process that reads for all, as is usual with data without a length",
            "Pass TrainingArguments(accelerator_config={'dispatch_batches': False}).",
        )
    columns = columns_of(trainer.train_dataset) if trainer.train_dataset is not None else None
    if config.mode == "source" and columns is not None and config.source_column not in columns:
        raise no_source_column(config.source_column, columns)
    known_layer = config.usual_features != "embedding" and config.name not in (
        "random",
        "full",
        "maxloss",
    )
    if known_layer and trainer.model is not None:
        from uniproto.training.layers import unwrapped, value_projection

        value_projection(unwrapped(trainer.model), config.layer)


def leave_together() -> None:
    """Wait for the other processes of this run and close the connections to them.

    Call it when no trainer and no wrapped model is left: they keep the process group, and with it
    threads that hold tensors, alive. Such a thread that lets go of a tensor while the interpreter
    is already shutting down ends the process with "terminate called without an active exception".
    Without other processes nothing happens.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    distributed.barrier()  # a process that leaves early takes the others' connections along
    distributed.destroy_process_group()
    gc.collect()  # trainers refer to themselves in circles; their threads end with them
