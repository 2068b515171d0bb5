"""Packed rows, several examples each: scored, chosen and trained on one by one."""

import importlib.util

import pytest
import torch
import transformers
from tests.lm.batches.test_selection_trainer import (
    collate,
    examples,
    recorded,
    small_tokenizer,
    tiny_model,
    trl_settings,
)
from tests.lm.batches.test_selection_trainer import make as make_trainer
from tests.refusals import refused

from uniproto.errors import InvalidInputError
from uniproto.lm import (
    SelectionConfig,
    SelectionMixin,
    SelectionTrainer,
)
from uniproto.lm.batches.flat_batches import spans
from uniproto.lm.batches.pools import PoolCollator, as_pool
from uniproto.lm.features.gradient_features import gradient_features
from uniproto.lm.features.losses import example_losses

needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs trl")
pytestmark = [pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")]

PER_ROW = (3, 1, 4, 2)  # examples in the first packed rows, and again from there


def packed(rows, per_row=PER_ROW):
    """The same examples, several to a row, as TRL's packing leaves them."""
    found, rest = [], list(rows)
    while rest:
        count = per_row[len(found) % len(per_row)]
        part, rest = rest[:count], rest[count:]
        found.append(
            {key: [each for row in part for each in row[key]] for key in ("input_ids", "labels")}
            | {"seq_lengths": [len(row["input_ids"]) for row in part]}
        )
    return found


def apart(row):
    """The examples of a packed row."""
    ids, labels = list(row["input_ids"]), list(row["labels"])
    found = []
    for length in row["seq_lengths"]:
        found.append({"input_ids": ids[:length], "labels": labels[:length]})
        ids, labels = ids[length:], labels[length:]
    return found


def end_to_end(rows):
    """As TRL collates packed rows: one row, and positions that restart."""
    collator = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    return collator([each for row in rows for each in apart(row)])


class Watch:
    """Goes in front of a selection: keeps every pool, and the gradient of the last step."""

    def __init__(self, **named):
        super().__init__(**named)
        self.pools, self.gradient = [], {}

    def _choose(self, pool, place):
        self.pools.append(pool)
        return super()._choose(pool, place)

    def training_step(self, model, *given):
        loss = super().training_step(model, *given)
        self.gradient = gradient_of(model)
        return loss


class Watched(Watch, SelectionTrainer):
    pass


def gradient_of(model):
    return {name: each.grad.clone() for name, each in model.named_parameters()}


def make(folder, data, model=None, selection=None, base=Watched, collator=end_to_end, **settings):
    selection = {"pool": 4, "keep": 2, "mode": "batch", **(selection or {})}
    options = {"collator": collator, "remove_unused_columns": False, **settings}
    return make_trainer(folder, model, data, base, selection, **options)


def unpacked(batch):
    """The examples of a batch that has them end to end, as rows of data."""
    ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
    return [
        {"input_ids": ids[start:end], "labels": labels[start:end]} for start, end in spans(batch)
    ]


def alone(model, row):
    """An example's loss by the model itself, with nothing beside it."""
    return model(
        input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])
    ).loss


def expected_gradient(model, rows, loss):
    """Of the examples one by one: means that count equally, or the mean over all their tokens."""
    counts = [sum(label != -100 for label in row["labels"][1:]) for row in rows]
    shares = [1 / len(rows)] * len(rows) if loss == "example" else [n / sum(counts) for n in counts]
    model.zero_grad()
    sum(share * alone(model, row) for share, row in zip(shares, rows, strict=True)).backward()
    return gradient_of(model)


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, atol=1e-6), name


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("micro_batch", [None, 2])
@pytest.mark.parametrize("loss", ["example", "token"])
def test_the_gradient_is_that_of_the_chosen_examples_unpacked(
    tmp_path, loss, micro_batch, attention
):
    data = packed(examples(24, uneven=True))
    selection = {"loss": loss, "micro_batch": micro_batch}
    model = tiny_model(attn_implementation=attention)
    trainer = make(tmp_path, data, model, selection, max_steps=1)
    trainer.train()
    (pool,) = trainer.pools
    chosen = unpacked(trainer.last_batch)
    assert chosen == [unpacked(pool.flat)[row] for row in trainer.last_selection]
    assert len(chosen) == round(pool.size / 2)
    assert_close(trainer.gradient, expected_gradient(tiny_model(), chosen, loss))


@pytest.mark.parametrize("loss", ["example", "token"])
def test_no_example_is_told_the_first_token_of_the_next(tmp_path, loss):
    """Some collators leave the labels as they are, also where examples meet."""

    def unmasked(rows):
        batch = end_to_end(rows)
        return batch | {"labels": batch["input_ids"].clone()}

    data = packed(examples(24, uneven=True))
    trainer = make(tmp_path, data, selection={"loss": loss}, collator=unmasked, max_steps=1)
    trainer.train()
    chosen = unpacked(trainer.last_batch)
    assert_close(trainer.gradient, expected_gradient(tiny_model(), chosen, loss))


def test_each_example_is_scored_as_if_it_were_alone():
    rows = examples(10, uneven=True)
    model = tiny_model().eval()
    pool = as_pool(PoolCollator(end_to_end, "source", required=False)(packed(rows)), "source")
    assert pool.size == 10
    assert pool.drawn == 4
    found = example_losses(model, pool.inputs)
    with torch.no_grad():
        expected = torch.stack([alone(model, row) for row in rows])
    assert torch.allclose(found, expected, atol=1e-6)
    features = gradient_features(model, pool.inputs).features
    assert torch.allclose(features, gradient_features(model, collate(rows)).features, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["uniproto", "greats", "random"])
def test_every_method_chooses_a_share_of_the_examples(tmp_path, method):
    data = packed(examples(40, uneven=True))  # 16 rows of 3, 1, 4 and 2 examples
    trainer = make(tmp_path, data, selection={"method": method}, num_train_epochs=1, max_steps=-1)
    seen = recorded(trainer)
    trainer.train()
    sizes = [pool.size for pool in trainer.pools]
    kept = [len(step[0]) for step in seen.selections]
    assert sum(sizes) == 40
    assert kept == [max(1, round(size / 2)) for size in sizes]
    logs = trainer.state.log_history
    assert [log["selection/pool"] for log in logs[:-1]] == sizes
    assert [log["selection/kept"] for log in logs[:-1]] == kept
    # The rate is rounded to three places, and so is the time it is a rate of.
    trained = logs[-1]["train_samples_per_second"] * logs[-1]["train_runtime"]
    assert trained == pytest.approx(sum(kept), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("one_each", [True, False])
def test_sources_of_rows_one_packs_oneself(tmp_path, one_each):
    """A label for each example of a row, or one for all of them."""
    data = packed(examples(40, uneven=True), per_row=(3,))
    for number, row in enumerate(data):
        count = len(row["seq_lengths"])
        row["source"] = ["a", "b", "b"][:count] if one_each else f"s{number % 2}"
    trainer = make(tmp_path, data, selection={"mode": "source"}, max_steps=1)
    trainer.train()
    (pool,) = trainer.pools
    assert len(pool.sources) == pool.size
    log = trainer.state.log_history[0]
    labels = ("a", "b") if one_each else ("s0", "s1")
    assert sum(log.get(f"selected/{label}", 0) for label in labels) == len(trainer.last_selection)
    if one_each:
        assert (log["selected/a"], log["selected/b"]) == (2, 4)
    data[0]["source"] = data[1]["source"] = data[2]["source"] = ["a", "b"]
    with refused("sources", InvalidInputError):
        make(tmp_path, data[:3], selection={"mode": "source"}).train()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("wrapped", "packing_strategy='bfd', .*'wrapped'"),
        (None, "packing_strategy='bfd', .*None"),
    ],
)
def test_refusals_come_before_anything_is_packed(tmp_path, strategy, words):
    class Late(SelectionMixin, transformers.Trainer):
        pass

    args = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    args.packing, args.packing_strategy = True, strategy
    with pytest.raises(InvalidInputError, match=words):
        Late(model=tiny_model(), args=args, train_dataset=examples())


def test_packed_rows_that_cannot_be_taken_apart_are_refused(tmp_path):
    """Lengths are there, and positions are not: examples would see each other."""
    data = packed(examples(24, uneven=True))
    with pytest.raises(InvalidInputError, match=r"4 rows for 11 examples.*packing_strategy='bfd'"):
        make(tmp_path, data, collator=collate).train()


# --- TRL itself ----------------------------------------------------------------------------------


def answers():
    words = ("b", "c", "d")
    return [
        {
            "prompt": "a " * (1 + n % 3),
            "completion": " ".join(words[(n + m) % 3] for m in range(1 + n % 4)),
            "source": f"s{n % 3}",
        }
        for n in range(40)
    ]


def trl_trainer(folder, selection=None, data=None, **settings):
    import datasets
    import trl

    class Selecting(Watch, SelectionMixin, trl.SFTTrainer):
        pass

    usual = trl_settings(folder, max_steps=1, max_length=24, packing=True)
    return Selecting(
        model=tiny_model(),
        args=trl.SFTConfig(**usual | settings),
        train_dataset=datasets.Dataset.from_list(answers() if data is None else data),
        processing_class=small_tokenizer(),
        selection=SelectionConfig(**{"pool": 4, "keep": 2, **(selection or {})}),
    )


@pytest.mark.slow
@needs_trl
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("strategy", "max_length"), [("bfd", 24), ("bfd_split", 10)])
@pytest.mark.parametrize("loss", ["example", "token"])
def test_trl_packing_trains_on_the_chosen_examples(tmp_path, strategy, max_length, loss):
    trainer = trl_trainer(
        tmp_path, {"loss": loss}, packing_strategy=strategy, max_length=max_length
    )
    trainer.train()
    (pool,) = trainer.pools
    assert pool.drawn == 4
    assert pool.size > 4
    chosen = unpacked(trainer.last_batch)
    assert len(chosen) == round(pool.size / 2)
    assert trainer.state.log_history[0]["selection/kept"] == len(chosen)
    assert_close(trainer.gradient, expected_gradient(tiny_model(), chosen, loss))


@pytest.mark.slow
@needs_trl
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_trl_packing_that_pads_is_refused(tmp_path):
    padded = trl_trainer(tmp_path, pad_to_multiple_of=64)
    with pytest.raises(InvalidInputError, match="without pad_to_multiple_of"):
        padded.train()
