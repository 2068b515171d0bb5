"""The Hugging Face Trainer with a selection in front of every step.

    from uniproto.lm import SelectionConfig, SelectionTrainer

    trainer = SelectionTrainer(
        model=model, args=TrainingArguments(...), train_dataset=data,
        selection=SelectionConfig(method="uniproto", mode="source", pool=128, keep=64),
    )
    trainer.train()

`SelectionMixin` goes in front of another Trainer: `class X(SelectionMixin, SFTTrainer)`. It uses
the Trainer's own hooks, and leaves the training loop alone. The Trainer's batches must hold one
example per row, or all examples end to end, which TRL's packing does; pairs of answers are refused.
"""

from __future__ import annotations

import copy
import gc
import inspect
import json
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.utils.data import IterableDataset
from transformers import Trainer

from uniproto.errors import InvalidInputError, warn_of_data
from uniproto.lm.batches.config import SelectionConfig
from uniproto.lm.batches.flat_batches import ExampleLoss, counted_examples, spans
from uniproto.lm.batches.pools import (
    ROWS,
    BatchPool,
    NumberedRows,
    PoolCollator,
    Window,
    as_pool,
    columns_of,
    no_source_column,
    over_processes,
    pieces,
    require_within_context,
    rows_per_source,
)
from uniproto.lm.batches.quotas import small_sources
from uniproto.lm.batches.scoring import embeddings_of, scores_of
from uniproto.lm.features.layers import preserve_state, unwrapped, value_projection
from uniproto.lm.features.losses import (
    batch_size,
    chosen_rows,
    require_causal_loss,
    require_language_model,
)

_SMALLEST_RATE = 1e-12  # a warm-up begins at 0, where GREATS would have nothing to compare
_CARRIED = "selection-{process}.json"  # in a checkpoint: the quotas carried over to the next step


_Hooks: Any = object  # the attributes of a Trainer, to type checkers


class SelectionMixin(_Hooks):
    """Trains every step on the chosen examples of a larger pool.

    `last_batch` is the micro-batch trained on last, `last_selection` its rows in the pool;
    `last_batches` and `last_selections` are those of the whole last step, one per accumulated
    micro-batch. What is logged with the loss: `selected/SOURCE` (examples per step; of data whose
    columns can be read alone every source every time),
    `selection/seconds` and `selection/share` of the step's time, `selection/cost`,
    `selection/random_cost` and how much of the possible gain over random choices was made,
    `selection/share_of_possible` (of the step's last micro-batch), `selection/kept`,
    `selection/pool`, and `selection/left_out`: examples with NaN or infinity in loss or gradient,
    never chosen.
    """

    selection: SelectionConfig
    train_dataset: Any
    data_collator: Any
    compute_loss_func: Any
    _signature_columns: Any
    last_batches: list[dict[str, Any]]
    last_selections: list[NDArray[np.int64]]

    def __init__(self, *given: Any, selection: Any = None, **named: Any) -> None:
        if selection is None:
            selection = SelectionConfig()
        self.selection = selection
        self.last_batches, self.last_selections = [], []
        self._embeddings: Any = None
        self._carried: dict[Hashable, float] = {}
        self._trained = 0  # examples, by this process
        self._warned = False
        named = _by_name(super().__init__, given, named)
        args = named.get("args")
        if args is not None:  # a copy: the caller's arguments may serve another trainer
            require_packable(args)
            named["args"] = args = copy.copy(args)
            args.per_device_train_batch_size = selection.pool
        super().__init__(**named)
        if args is None:
            self.args.per_device_train_batch_size = selection.pool
            self._train_batch_size = self.args.train_batch_size
        require_supported(self)
        share, column = selection.keep_small, selection.source_column
        rows = rows_per_source(self.train_dataset, column, read_all=isinstance(share, float))
        self._small = small_sources(rows, share) if isinstance(share, float) else None
        self._sources = sorted(map(str, rows))
        self._window = Window(self._sources)

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
        """Pools, with each example's source (and row, for embeddings) next to the inputs."""
        config = self.selection
        self._set_signature_columns_if_needed()
        original = self.data_collator, self._signature_columns, self.train_dataset
        _, columns, dataset = original
        self._signature_columns = [*columns, config.source_column, ROWS]
        self.data_collator = self._pool_collator(
            required=config.mode == "source", adds_metadata=not dispatches(self)
        )
        if config.usual_features == "embedding":
            self._embed(dataset)
            self.train_dataset = NumberedRows(dataset)
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator, self._signature_columns, self.train_dataset = original

    def get_eval_dataloader(self, *given: Any, **named: Any) -> Any:
        """Drop the source column of evaluation data where the collator would fail on it."""
        original = self.data_collator
        self.data_collator = self._pool_collator(False, adds_metadata=False, trains=False)
        try:
            return super().get_eval_dataloader(*given, **named)
        finally:
            self.data_collator = original

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, *others: Any, **named: Any
    ) -> tuple[list[Any], Any]:
        """Fetch the pools of one step, choose from each, and count what was chosen.

        The count scales the loss. Counted on the pools, as the Trainer would have it, the loss of
        the chosen examples would be too small.
        """
        self._window.begin(self.state.global_step)
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, *others, **named)
        began = time.perf_counter()
        pools = [as_pool(batch, self.selection.source_column) for batch in batches]
        batches, selections = [], []
        with preserve_state(self.model):
            if pools and self.selection.usual_loss == "example":
                require_causal_loss(unwrapped(self.model), pools[0].inputs)
            for place, pool in enumerate(pools):
                rows = self._choose(pool, place)
                batches.append(pool.chosen(rows))
                selections.append(rows)
        self._window.selection_seconds += time.perf_counter() - began
        if batches:
            self.last_batches, self.last_selections = batches, selections
        device = others[0] if others else named.get("device", self.args.device)
        return batches, self._count(batches, device)

    def _count(self, batches: list[dict[str, Any]], device: Any) -> Any:
        """What the loss is divided by: the answer tokens of a step, or its examples."""
        if self.selection.usual_loss == "token" or not batches:
            return self._get_num_items_in_batch(batches, device)
        count = torch.tensor(sum(map(counted_examples, batches)), device=device)
        if self.args.average_tokens_across_devices:  # then the Trainer multiplies by them
            if self.args.world_size > 1:
                count = self.accelerator.gather(count).sum()
            count = count * max(1, self.args.n_gpu)
        return count

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """One forward and backward pass, or several on parts of the batch where memory is short."""
        most = self.selection.micro_batch
        if most is None or len(spans(inputs) or range(batch_size(inputs))) <= most:
            return self._pass(model, inputs, num_items_in_batch)
        if num_items_in_batch is None:
            raise InvalidInputError(
                "needs a loss that is a sum over counted tokens. Lower keep and "
                "accumulate gradients instead.",
                parameter="micro_batch",
            )
        parts = pieces(inputs, most)
        total: Any = 0.0
        for place, part in enumerate(parts):
            is_last = place == len(parts) - 1
            with nullcontext() if is_last else self.accelerator.no_sync(model=model):
                total = total + self._pass(model, part, num_items_in_batch)
        return total

    def _pass(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        """The Trainer's own step, with its own loss or with one that counts examples equally."""
        if self.selection.usual_loss == "token":
            return super().training_step(model, inputs, num_items_in_batch)
        self.compute_loss_func = loss = ExampleLoss(inputs)
        try:
            found = super().training_step(model, inputs, num_items_in_batch)
        finally:
            self.compute_loss_func = None  # evaluation keeps the model's loss
        if not loss.used:
            raise own_loss(f"{type(self).__name__}, which computes its loss itself")
        return found

    def log(self, logs: dict[str, float], *others: Any, **named: Any) -> None:
        """The Trainer's log, with the selection's numbers next to the loss."""
        if "loss" in logs and self._window.steps:
            logs.update(self._window.summary(self.args.world_size))
            self._window = Window(self._sources)
        if "train_samples_per_second" in logs and logs.get("train_runtime"):
            # Of examples trained on: the Trainer would count those of the pools.
            trained = over_processes({"trained": self._trained}, self.args.world_size)
            rate = trained["trained"] / logs["train_runtime"]
            logs["train_samples_per_second"] = round(rate, 3)
        super().log(logs, *others, **named)

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the carried quotas with the random states, in every process."""
        super()._save_rng_state(output_dir)
        path = Path(output_dir, _CARRIED.format(process=self.args.process_index))
        path.write_text(json.dumps(list(self._carried.items())), encoding="utf-8")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load the carried quotas with the optimizer: the first choice needs them."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint, _CARRIED.format(process=self.args.process_index))
        if path.exists():
            self._carried = dict(map(tuple, json.loads(path.read_text(encoding="utf-8"))))

    def _pool_collator(
        self, required: bool, adds_metadata: bool, trains: bool = True
    ) -> PoolCollator:
        """The user's collator; a collator of transformers or TRL is not shown the sources."""
        collator = self.data_collator
        return PoolCollator(
            collator,
            self.selection.source_column,
            required=required,
            adds_metadata=adds_metadata,
            trains=trains,
            sees_all=not self.args.remove_unused_columns
            and type(collator).__module__.partition(".")[0] not in ("transformers", "trl"),
        )

    # --- choosing --------------------------------------------------------------------------------

    def _choose(self, pool: BatchPool, place: int) -> NDArray[np.int64]:
        """Rows of the pool, in the order picked."""
        config = self.selection
        require_within_context(self.model, pool)
        step = self.state.global_step * self.args.gradient_accumulation_steps + place
        seed = (self._seed, step, self.args.process_index)
        scores = scores_of(
            pool, config, self.model, self.optimizer, seed, self._embeddings, self._anchors
        )
        keep = pool.examples_in(config.keep * max(1, self.args.n_gpu))
        mixed = _mixed(self._seed, self.args.process_index)
        selector = config.selector(keep, seed=mixed, small=self._small)
        selector.calls, selector.carried, selector.whole_if_few = step, self._carried, True
        self._warn_of_few(keep, pool)
        selector.learning_rate = max(_SMALLEST_RATE, float(self.optimizer.param_groups[0]["lr"]))
        rows = selector(**scores, sources=pool.sources if selector.mode == "source" else None)
        assert selector.last is not None
        self._window.add(selector.last, pool, measured=config.measure_cost)
        self._trained += len(rows)
        return rows

    def _warn_of_few(self, keep: int, pool: BatchPool) -> None:
        """Warn once that not every source can be in every step."""
        by_share = self.selection.mode == "source" and isinstance(self.selection.budgets, str)
        if self._warned or not by_share or pool.sources is None:
            return
        sources = len(set(pool.sources))
        if keep < sources:
            self._warned = True
            warn_of_data(
                f"'keep' is {keep}, fewer than the {sources} sources of a pool: not every source "
                "is in every step, but each gets its share over the steps. Raise keep, or use "
                "mode='batch', if that is not what you want.",
                UserWarning,
                through=("transformers", "accelerate", "trl"),  # the caller of train()
            )

    @property
    def _seed(self) -> int:
        given = self.selection.seed
        return int(self.args.seed if given is None else given)

    def _anchors(self, seed: tuple[int, ...]) -> dict[str, Any]:
        """Random training examples as validation, for GREATS."""
        data = self.train_dataset
        random = np.random.default_rng((*seed, 7))
        rows = random.choice(len(data), min(self.selection.anchors, len(data)), replace=False)
        columns = self._signature_columns
        examples = [data[int(row)] for row in rows]
        if self.args.remove_unused_columns and isinstance(examples[0], Mapping):
            examples = [{key: each[key] for key in each if key in columns} for each in examples]
        batch = PoolCollator(self.data_collator, self.selection.source_column, False)(examples)
        pool = as_pool(batch, self.selection.source_column)
        if pool.size > len(rows):  # packed rows hold several: as many of them as are wanted
            few = random.choice(pool.size, len(rows), replace=False)
            return self._prepare_inputs(chosen_rows(pool.inputs, pool.size, few))
        return self._prepare_inputs(pool.inputs)

    def _embed(self, dataset: Any) -> None:
        """Vectors of all training examples, once; on several processes the first computes them."""
        if self._embeddings is None:
            with self.args.main_process_first(desc="embedding the training texts"):
                self._embeddings = embeddings_of(
                    dataset, self.selection, getattr(self, "processing_class", None)
                )


class SelectionTrainer(SelectionMixin, Trainer):
    """transformers' Trainer, which trains on the chosen examples of a larger pool."""


def _mixed(seed: int, process: int) -> int:
    """A seed of its own for every process; that of the first is the seed itself."""
    return (
        seed if process == 0 else int(np.random.SeedSequence((seed, process)).generate_state(1)[0])
    )


def _by_name(init: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name: Trainers have them in different orders."""
    parameters = list(inspect.signature(init).parameters.values())
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        parameters = list(inspect.signature(Trainer.__init__).parameters.values())[1:]
    names = [each.name for each in parameters]
    twice = [name for name in names[: len(given)] if name in named]
    if twice or len(given) > len(names):
        raise TypeError(f"{twice or len(given)}: arguments given twice, or too many of them")
    return dict(zip(names, given, strict=False)) | dict(named)


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


# --- what a Trainer must be like: refused before it trains ----------------------------------------


# TRL's names of packing that leaves a border, and positions that restart, between two examples.
_WITH_BORDERS = ("bfd", "bfd_split", "bfd-requeue")


def require_packable(args: Any) -> None:
    """Refuse packing that leaves nothing to choose from; before TRL packs, which takes time."""
    if not getattr(args, "packing", False):
        return
    strategy = getattr(args, "packing_strategy", None)
    if strategy not in _WITH_BORDERS:
        raise InvalidInputError(
            "needs packing_strategy='bfd', which keeps examples apart, not "
            f"{strategy!r}; or pass padding_free=True in place of it.",
            parameter="packing",
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
        if getattr(trainer, f"is_{kind}_enabled", False) and config.chooses.needs:
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
        f"is 'example', which would replace {received}. Pass SelectionConfig(loss='token').",
        parameter="loss",
    )


def dispatches(trainer: Any) -> bool:
    """Whether one process reads the batches of all: only tensors travel to the others."""
    found = trainer.accelerator.dispatch_batches
    if found is None:
        found = isinstance(trainer.train_dataset, IterableDataset)
    return bool(found) and trainer.args.world_size > 1
