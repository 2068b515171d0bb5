"""Selection inside the Hugging Face Trainer: what is trained on, counted, logged and left alone."""

import copy
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import peft
import pytest
import tokenizers
import torch
import transformers
from tests.refusals import refused

from uniproto.errors import InvalidInputError, UniprotoError
from uniproto.lm import SelectionConfig, SelectionMixin, SelectionTrainer
from uniproto.lm.batches import trainer as batches_trainer
from uniproto.lm.batches.methods import BATCH_METHODS
from uniproto.lm.features.tokens import PaddingCollator, SourcedExample, tokenise
from uniproto.lm.finetune import monitoring
from uniproto.lm.finetune.run import CHECKPOINTING

TRAINING = Path(__file__).parents[3] / "docs" / "training-details.md"

pytestmark = [
    # pinned memory is asked for by default, and there is no accelerator in the tests
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]

SOURCES = ("algebra", "logic", "prose")
_VOCABULARY = 64


_slow = partial(pytest.param, marks=pytest.mark.slow)  # with make test-all


def tiny_model(dropout=0.0, lora=False, seed=0, **settings):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        **{
            "vocab_size": _VOCABULARY,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32,
            "attention_dropout": dropout,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            **settings,
        }
    )
    model = transformers.LlamaForCausalLM(config)
    if lora:
        adapters = peft.LoraConfig(
            r=4, lora_alpha=8, lora_dropout=dropout, target_modules=["q_proj", "v_proj"]
        )
        model = peft.get_peft_model(model, adapters)
    return model


def examples(count=48, seed=0, length=8, uneven=False):
    """Rows of tokens from three sources of different sizes."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        tokens = draw.integers(3, _VOCABULARY, length + (draw.integers(0, 5) if uneven else 0))
        labels = tokens.copy()
        labels[: draw.integers(1, 4)] = -100
        rows.append(
            {
                "input_ids": tokens.tolist(),
                "labels": labels.tolist(),
                "source": str(draw.choice(SOURCES, p=[0.6, 0.3, 0.1])),
            }
        )
    return rows


def collate(rows):
    """Pads to the longest, as an own collator would."""
    longest = max(len(row["input_ids"]) for row in rows)

    def padded(key, filling):
        return torch.tensor([row[key] + [filling] * (longest - len(row[key])) for row in rows])

    ids = padded("input_ids", 0)
    return {"input_ids": ids, "labels": padded("labels", -100), "attention_mask": (ids != 0).long()}


def arguments(folder, **settings):
    defaults = {
        "output_dir": str(folder),
        "max_steps": 3,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 3,
        "dataloader_pin_memory": False,
    }
    return transformers.TrainingArguments(**{**defaults, **settings})


def make(
    folder,
    model=None,
    data=None,
    base=SelectionTrainer,
    selection=None,
    collator=collate,
    held_out=None,
    **settings,
):
    selection = {"pool": 12, "keep": 5, "mode": "source", **(selection or {})}
    if selection.get("method") == "sbert":
        rows = len(data or examples())
        selection.setdefault("embeddings", np.random.default_rng(1).normal(size=(rows, 6)))
    return base(
        model=tiny_model() if model is None else model,
        args=arguments(folder, **settings),
        train_dataset=examples() if data is None else data,
        eval_dataset=held_out,
        data_collator=collator,
        selection=SelectionConfig(**selection),
    )


def trl_settings(folder, **settings):
    """Of a short run of TRL's trainers, which have other defaults than transformers."""
    quiet = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, "logging_steps": 1}
    on_cpu = {"use_cpu": True, "bf16": False, "dataloader_pin_memory": False, CHECKPOINTING: False}
    return {"output_dir": str(folder), "max_steps": 2, **quiet, **on_cpu, **settings}


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


class Recorder(transformers.TrainerCallback):
    """Keeps every step's batches and selections."""

    def __init__(self):
        self.trainer = None
        self.batches, self.selections = [], []

    def on_step_end(self, args, state, control, **kwargs):
        self.batches.append([copy.deepcopy(batch) for batch in self.trainer.last_batches])
        self.selections.append([rows.tolist() for rows in self.trainer.last_selections])


def recorded(trainer):
    recorder = Recorder()
    recorder.trainer = trainer
    trainer.add_callback(recorder)
    return recorder


def losses_logged(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


# --- every method, in both modes -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "lora"), [("batch", False), ("source", True)])
@pytest.mark.parametrize("method", BATCH_METHODS)
def test_every_method_trains_in_both_modes(tmp_path, method, mode, lora):
    model = tiny_model(lora=lora, dropout=0.1)
    before = weights(model)
    trainer = make(tmp_path, model, selection={"method": method, "mode": mode}, max_steps=2)
    trainer.train()
    kept = 12 if method == "full" else 5
    assert trainer.last_batch["input_ids"].shape[0] == kept
    assert len(set(trainer.last_selection.tolist())) == kept
    assert set(trainer.last_batch) == {"input_ids", "labels", "attention_mask"}
    after = weights(model)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    first = trainer.state.log_history[0]
    assert first["selection/kept"] == kept
    assert first["selection/pool"] == 12
    assert sum(value for name, value in first.items() if name.startswith("selected/")) == kept
    assert 0 < first["selection/share"] <= 1
    assert ("selection/cost" in first) == (method not in ("maxloss", "random", "full"))


def test_selection_is_the_one_of_the_selector_on_the_same_gradients(tmp_path):
    from uniproto.lm import BatchSelector
    from uniproto.lm.features.gradient_features import gradient_features

    class Watched(SelectionTrainer):
        def _choose(self, pool, place):
            self.pool = pool
            return super()._choose(pool, place)

    trainer = make(tmp_path, base=Watched, max_steps=1)
    trainer.train()
    pool = trainer.pool
    scored = gradient_features(tiny_model(), pool.inputs)
    expected = BatchSelector("uniproto", "source", 5)(scored.features, sources=pool.sources)
    assert trainer.last_selection.tolist() == expected.tolist()
    assert torch.equal(trainer.last_batch["input_ids"], pool.inputs["input_ids"][expected])


# --- nothing leaks, and the loss is scaled by what was kept --------------------------------------


class Plain(transformers.Trainer):
    """The Trainer as it is, on batches that somebody else chose."""

    def __init__(self, *given, batches, **named):
        super().__init__(*given, **named)
        self.batches = iter(batches)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        for _ in range(num_batches):
            next(epoch_iterator)  # the loader's own draws, as in the other run
        return super().get_batch_samples(iter(next(self.batches)), num_batches, device)


@pytest.mark.parametrize(
    ("method", "settings", "accumulated"),
    [
        ("uniproto", {}, 1),
        ("uniproto", {}, 3),
        ("uniproto", {"bf16": True}, 2),
        ("uniproto", {CHECKPOINTING: True}, 2),
        ("colm", {}, 2),
        ("greats", {}, 2),
        _slow("greats", {CHECKPOINTING: True}, 1),
    ],
    ids=str,
)
def test_a_step_equals_a_plain_step_on_the_selected_examples(
    tmp_path, method, settings, accumulated
):
    """Bit for bit: weights, losses and dropout of a run that never looked at the pools."""
    options = {**settings, "gradient_accumulation_steps": accumulated, "max_steps": 3}
    chosen = tiny_model(lora=True, dropout=0.3)
    data = examples(count=72, uneven=True)
    selection = {"method": method, "loss": "token"}
    trainer = make(tmp_path / "a", chosen, data, selection=selection, **options)
    recorder = recorded(trainer)
    trainer.train()
    plain = tiny_model(lora=True, dropout=0.3)
    other = Plain(
        model=plain,
        args=arguments(tmp_path / "b", per_device_train_batch_size=12, **options),
        train_dataset=[{k: v for k, v in row.items() if k != "source"} for row in data],
        data_collator=collate,
        batches=recorder.batches,
    )
    other.train()
    assert_same(weights(chosen), weights(plain))
    assert losses_logged(trainer) == losses_logged(other)


# --- the same again ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["uniproto", "random"])
def test_resuming_changes_nothing(tmp_path, method):
    options = {"gradient_accumulation_steps": 2, "max_steps": 6, "selection": {"method": method}}
    whole = make(tmp_path / "whole", tiny_model(lora=True, dropout=0.2), **options)
    seen = recorded(whole)
    whole.train()
    stopped = make(
        tmp_path / "stopped",
        tiny_model(lora=True, dropout=0.2),
        **options,
        save_strategy="steps",
        save_steps=4,
    )
    stopped.train()
    resumed = make(tmp_path / "stopped", tiny_model(lora=True, dropout=0.2), **options)
    rest = recorded(resumed)
    resumed.train(resume_from_checkpoint=str(tmp_path / "stopped" / "checkpoint-4"))
    assert rest.selections == seen.selections[4:]
    assert_same(weights(whole.model), weights(resumed.model))


# --- the log -------------------------------------------------------------------------------------


def test_log_holds_plain_numbers_of_every_step(tmp_path):
    trainer = make(tmp_path, max_steps=4, logging_steps=2)
    seen = recorded(trainer)
    trainer.train()
    logs = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["step"] for row in logs] == [2, 4]
    for row in logs:
        assert all(isinstance(value, int | float) for value in row.values())
        assert row["selection/kept"] == 5
        assert row["selection/cost"] < row["selection/random_cost"]
        assert row["selection/seconds"] <= row["selection/step_seconds"]
    assert len(seen.batches) == 4
    json.dumps(logs)


def test_last_pool_of_an_epoch_may_be_small(tmp_path):
    trainer = make(tmp_path, data=examples(count=15), max_steps=4)
    seen = recorded(trainer)
    trainer.train()
    assert [len(rows) for step in seen.selections for rows in step] == [5, 3, 5, 3]


@pytest.mark.slow
def test_data_without_a_length(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from examples()

    trainer = make(tmp_path, data=Stream(), max_steps=2)
    trainer.train()
    assert len(trainer.last_selection) == 5
    with pytest.raises(TypeError, match=r"has no len"):
        make(tmp_path, data=Stream(), selection={"method": "greats"}).train()


def test_counts_are_per_step_where_the_data_end_amid_one(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from examples(count=30)  # pools of 12, 12 and 6

    trainer = make(tmp_path, data=Stream(), max_steps=4, gradient_accumulation_steps=2)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "loss" in row]
    # The Trainer keeps the gradient of a window that came to no step for the next one.
    assert [row["selection/pool"] for row in logged] == [24, 30, 30, 30]
    assert [row["selection/kept"] for row in logged] == [10, 15, 15, 15]


def test_one_process_that_reads_for_all_carries_no_sources(tmp_path, monkeypatch):
    """Accelerate sends tensors from it to the others, and nothing else."""

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from examples()

    monkeypatch.setattr(transformers.TrainingArguments, "world_size", 2)
    with pytest.raises(InvalidInputError, match="'dispatch_batches': False"):
        make(tmp_path, data=Stream())
    trainer = make(tmp_path, data=Stream(), selection={"mode": "batch"})
    assert "uniproto_sources" not in next(iter(trainer.get_train_dataloader()))
    own = {"accelerator_config": {"dispatch_batches": False}}
    trainer = make(tmp_path, data=Stream(), **own)
    assert "uniproto_sources" in next(iter(trainer.get_train_dataloader()))


def test_evaluation_data_may_have_sources_too(tmp_path):
    """With every column kept, a collator of transformers would make tensors of their names."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0}, unk_token="<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>")
    trainer = make(
        tmp_path,
        data=examples(uneven=True),
        held_out=examples(count=7, seed=1, uneven=True),
        collator=transformers.DataCollatorForSeq2Seq(tokenizer),
        remove_unused_columns=False,
        max_steps=1,
    )
    trainer.train()
    assert trainer.evaluate()["eval_loss"] > 0


@pytest.mark.slow
def test_loader_processes_and_the_trainer_s_own_collator(tmp_path):
    options = {"collator": None, "dataloader_num_workers": 1, "max_steps": 2}
    trainer = make(tmp_path, held_out=examples(count=7, seed=1), **options)
    trainer.train()
    assert trainer.last_batch["input_ids"].shape == (5, 8)
    assert trainer.evaluate()["eval_loss"] > 0  # sees all rows, and no sources
    assert trainer.last_batch["input_ids"].shape == (5, 8)


def test_own_collator_may_look_at_the_source(tmp_path):
    seen = []

    def own(rows):
        seen.extend(row["source"] for row in rows)
        return {**collate(rows), "source": [row["source"] for row in rows]}

    trainer = make(tmp_path, collator=own, remove_unused_columns=False, max_steps=1)
    trainer.train()
    assert len(seen) >= 12
    assert "source" not in trainer.last_batch


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_missing_source_column(tmp_path):
    data = [{k: v for k, v in row.items() if k != "source"} for row in examples()]
    with pytest.raises(InvalidInputError, match=r"source_column.*mode='batch'"):
        make(tmp_path, data=data)
    trainer = make(tmp_path, data=data, selection={"mode": "batch"}, max_steps=1)
    trainer.train()
    assert not any(name.startswith("selected/") for name in trainer.state.log_history[0])
    with pytest.raises(InvalidInputError, match="'origin'"):
        make(tmp_path, selection={"source_column": "origin"})
    ragged = examples()
    for row in ragged[1:]:
        row["source"] = None
    with pytest.raises(InvalidInputError, match="must hold a label in every row"):
        make(tmp_path, data=ragged).train()
    for row in ragged[1:]:
        del row["source"]
    with pytest.raises(InvalidInputError, match="is not a column of every training example"):
        make(tmp_path, data=ragged).train()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["uniproto", "random"])
def test_an_example_longer_than_the_context(tmp_path, method):
    data = examples(count=12)
    data[3]["input_ids"] = data[3]["labels"] = [5] * 33
    with pytest.raises(InvalidInputError, match="of 33 tokens, beyond the model's context of 32"):
        make(tmp_path, data=data, selection={"method": method}, max_steps=1).train()
    data[3]["input_ids"] = data[3]["labels"] = [5] * 32  # the longest there may be
    make(tmp_path, data=data, selection={"method": method}, max_steps=1).train()


@pytest.mark.parametrize(
    "options",
    [
        {"method": "unipruto"},
        {"mode": "sauce"},
        {"keep": 0},
        {"keep": 5, "pool": 4},
        {"pool": 2.5},
        {"features": "gradients"},
        {"score_batch_size": 0},
        {"features": "zeroth-order", "method": "greats"},
        {"features": "embedding", "method": "greats"},
        {"features": "embedding", "method": "gradnorm"},
        {"seed": -1},
    ],
)
def test_config_says_what_is_wrong(options):
    with refused(next(iter(options)), InvalidInputError):
        SelectionConfig(**options)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["uniproto", "maxloss", "greats"])
def test_examples_without_a_finite_loss_are_left_out_and_counted(tmp_path, method):
    data = examples(count=12)
    for row in data[:3]:
        row["labels"] = [-100] * len(row["labels"])  # a mean over nothing: NaN
    trainer = make(tmp_path, data=data, selection={"method": method}, max_steps=1)
    trainer.train()
    assert trainer.state.log_history[0]["selection/left_out"] == 3
    assert (trainer.last_batch["labels"] != -100).any(dim=1).all()
    few = make(tmp_path, data=data[:6], selection={"method": method}, max_steps=1)
    few.train()
    assert len(few.last_selection) == 3


def test_a_diverged_model_is_told(tmp_path):
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(UniprotoError, match="Lower the learning rate"):
        make(tmp_path, model).train()


def test_model_without_a_value_projection(tmp_path):
    model = tiny_model()
    attention = model.model.layers[-1].self_attn
    attention.weird = attention.v_proj
    del attention.v_proj

    class Attention(type(attention)):
        v_proj = property(lambda self: self.weird)

    attention.__class__ = Attention
    with pytest.raises(InvalidInputError, match=r"layer='model\.layers\.1"):
        make(tmp_path, model)
    trainer = make(tmp_path, model, selection={"layer": "layers.1.self_attn.weird"}, max_steps=1)
    trainer.train()
    assert len(trainer.last_selection) == 5


def test_other_optimizers_than_adam(tmp_path):
    with pytest.raises(InvalidInputError, match="adam_aligned=False"):
        make(tmp_path, optim="sgd", max_steps=2).train()
    make(tmp_path, optim="sgd", max_steps=2, selection={"adam_aligned": False}).train()


@pytest.mark.slow
def test_sbert_needs_texts(tmp_path):
    with refused("text_column", InvalidInputError):
        make(tmp_path, selection={"method": "sbert", "embeddings": None}).train()
    with refused("embeddings", InvalidInputError):
        make(tmp_path, selection={"method": "sbert", "embeddings": np.ones((3, 2))}).train()


def test_sbert_follows_the_rows(tmp_path):
    """Each example's own vector reaches the selector, however the loader shuffles."""
    data = examples(count=24)
    vectors = np.eye(24)[:, :8] + np.arange(24)[:, None] * 0.01 + 0.001
    trainer = make(tmp_path, data=data, selection={"method": "sbert", "embeddings": vectors})
    pool = next(iter(trainer.get_train_dataloader()))
    rows = pool["uniproto_rows"]
    assert [data[row]["input_ids"] for row in rows] == pool["input_ids"].tolist()
    trainer.train()


# --- with other trainers -------------------------------------------------------------------------


class Careful(transformers.Trainer):
    """Somebody's own Trainer, with hooks of its own."""

    def training_step(self, *given, **named):
        self.micro_steps = getattr(self, "micro_steps", 0) + 1
        return super().training_step(*given, **named)


class SelectingCareful(SelectionMixin, Careful):
    pass


def test_mixin_in_front_of_another_trainer(tmp_path):
    trainer = make(tmp_path, base=SelectingCareful, gradient_accumulation_steps=2, max_steps=2)
    trainer.train()
    assert trainer.micro_steps == 4
    assert len(trainer.last_selection) == 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_private_hooks_of_the_trainer_are_there():
    """What SelectionMixin and finetune override, call or set, as docs/training-details.md lists."""
    listed = set(re.findall(r"`(_\w+)`", TRAINING.read_text("utf-8")))
    assert {"_save_rng_state", "_load_rng_state"} <= listed
    for name in listed - {"_signature_columns", "_train_batch_size"}:  # set by __init__
        assert callable(getattr(transformers.Trainer, name)), name
    used = set()
    for path in (batches_trainer.__file__, monitoring.__file__):
        code = Path(path).read_text("utf-8")
        used |= set(re.findall(r"(?:trainer|super\(\))\.(_[a-z]\w+)", code))
    assert used <= listed


class GradientsSeen(transformers.TrainerCallback):
    """The gradient of every step."""

    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        parts = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
        self.gradients.append(torch.cat(parts).clone())


@pytest.mark.parametrize("loss", ["example", "token"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_trl_trains_with_the_gradients_of_finetune(tmp_path, loss, accumulate):
    trl = pytest.importorskip("trl", reason="needs trl")
    datasets = pytest.importorskip("datasets", reason="needs datasets")

    class SelectingSFT(SelectionMixin, trl.SFTTrainer):
        pass

    rows = [SourcedExample(f"s{n % 3}", (f"A B{n % 7}", " C" * (1 + n % 5))) for n in range(48)]
    tokenizer, found = small_tokenizer(), []
    steps = {"gradient_accumulation_steps": accumulate, "learning_rate": 1e-3}
    settings = trl_settings(tmp_path, **steps)
    for kind in (SelectionTrainer, SelectingSFT):
        if kind is SelectionTrainer:
            args = transformers.TrainingArguments(**settings)
            data, _ = tokenise(rows, tokenizer, 512, "truncate", "{instruction}")
            options = {"data_collator": PaddingCollator(tokenizer.pad_token_id)}
        else:
            args = trl.SFTConfig(**settings)
            names = ("source", "prompt", "completion")
            data = datasets.Dataset.from_list(
                [dict(zip(names, (source, *pair), strict=True)) for source, pair in rows]
            )
            options = {}
        seen = GradientsSeen()
        trainer = kind(
            model=tiny_model(),
            args=args,
            train_dataset=data,
            processing_class=tokenizer,
            callbacks=[seen],
            selection=SelectionConfig(mode="source", pool=12, keep=5, loss=loss),
            **options,
        )
        trainer.train()
        assert len(trainer.last_batch["input_ids"]) == 5
        log = next(row for row in trainer.state.log_history if "loss" in row)
        assert {f"selected/s{n}" for n in range(3)} <= set(log)
        found.append(torch.stack(seen.gradients))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)


def small_tokenizer():
    """A tokenizer of single characters."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<pad>", "<s>", "</s>", "<unk>", *(chr(n) for n in range(32, 88)), *"abcd"]
    inner = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
