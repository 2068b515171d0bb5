"""Batches and models that selection must refuse or treat rightly: packed, pairs, other losses."""

import importlib.util

import pytest
import torch
import transformers
from tests.lm.batches.test_selection_trainer import (
    arguments,
    collate,
    examples,
    make,
    recorded,
    small_tokenizer,
    tiny_model,
    trl_settings,
    weights,
)
from tests.refusals import refused

from uniproto.errors import InvalidInputError
from uniproto.lm import SelectionConfig, SelectionMixin
from uniproto.lm.batches.flat_batches import as_rows, end_to_end, spans
from uniproto.lm.features.gradient_features import gradient_features
from uniproto.lm.features.losses import example_losses

needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs trl")
pytestmark = [pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")]


def plain_rows(count=24, **options):
    return examples(count, uneven=True, **options)


# --- examples end to end -------------------------------------------------------------------------


def flat_batch(rows):
    collator = transformers.DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_seq_idx=True
    )
    return collator([{k: row[k] for k in ("input_ids", "labels")} for row in rows])


def test_examples_end_to_end_become_rows_and_come_back():
    rows = plain_rows(5)
    flat = flat_batch(rows)
    parts = spans(flat)
    assert [end - start for start, end in parts] == [len(row["input_ids"]) for row in rows]
    padded = as_rows(flat, parts)
    assert padded["attention_mask"].sum(dim=1).tolist() == [len(row["input_ids"]) for row in rows]
    chosen, expected = end_to_end(flat, parts, [3, 0]), flat_batch([rows[3], rows[0]])
    assert chosen.keys() == expected.keys()
    for key, value in expected.items():
        same = torch.equal(chosen[key], value) if torch.is_tensor(value) else chosen[key] == value
        assert same, key


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch", [None, 2])
@pytest.mark.parametrize("loss", ["example", "token"])
def test_without_padding_the_same_is_chosen_and_learned(tmp_path, loss, micro_batch):
    data, selection = plain_rows(), {"loss": loss, "micro_batch": micro_batch}
    padded = make(tmp_path / "a", tiny_model(), data, selection=selection)
    seen = recorded(padded)
    padded.train()
    collator = transformers.DataCollatorWithFlattening()
    flat = make(tmp_path / "b", data=data, selection=selection, collator=collator)
    seen_flat = recorded(flat)
    flat.train()
    assert seen_flat.selections == seen.selections
    assert flat.last_batch["input_ids"].shape[0] == 1
    assert len(spans(flat.last_batch)) == 5
    ours, theirs = weights(flat.model), weights(padded.model)
    for name in theirs:
        assert torch.allclose(ours[name], theirs[name], atol=2e-5), name


@pytest.mark.slow
def test_packed_rows_are_refused(tmp_path):
    def packed(rows):
        """Two examples in every row, as packing leaves them."""
        ids = torch.tensor([row["input_ids"][:8] for row in rows]).reshape(-1, 16)
        places = torch.arange(8).repeat(len(ids), 2)
        return {"input_ids": ids, "labels": ids, "position_ids": places}

    def merged(rows):
        """The same without positions: only the number of rows tells."""
        batch = packed(rows)
        del batch["position_ids"]
        return batch

    for collator, words in ((packed, "several examples each"), (merged, "6 rows for 12 examples")):
        for method in ("uniproto", "random"):
            selection = {"method": method, "mode": "batch"}
            with pytest.raises(InvalidInputError, match=words):
                make(tmp_path, data=plain_rows(), selection=selection, collator=collator).train()


@pytest.mark.parametrize("method", ["uniproto", "random"])
def test_pairs_are_refused(tmp_path, method):
    """Chosen answers first, then rejected ones: rows of one example must stay together."""

    def pairs(rows):
        batch = collate(rows)
        return {key: torch.cat([value, value]) for key, value in batch.items()}

    selection = {"method": method, "mode": "batch"}
    with pytest.raises(InvalidInputError, match="24 rows for 12 examples"):
        make(tmp_path, data=plain_rows(), selection=selection, collator=pairs).train()


# --- other Trainers ------------------------------------------------------------------------------


def test_arguments_go_by_name_whatever_their_order(tmp_path):
    class Reordered(transformers.Trainer):
        def __init__(self, model=None, reference=None, args=None, train_dataset=None, **named):
            super().__init__(model=model, args=args, train_dataset=train_dataset, **named)
            self.reference = reference

    class Selecting(SelectionMixin, Reordered):
        pass

    args, selection = arguments(tmp_path), SelectionConfig(pool=12, keep=5)
    by_place = Selecting(tiny_model(), "other", args, plain_rows(), selection=selection)
    by_name = Selecting(
        model=tiny_model(), args=args, train_dataset=plain_rows(), selection=selection
    )
    assert by_place.reference == "other"
    assert by_name.reference is None
    for trainer in (by_place, by_name):
        assert trainer.args.per_device_train_batch_size == 12
        assert len(trainer.train_dataset) == 24
    with pytest.raises(TypeError, match="model"):
        Selecting(tiny_model(), model=tiny_model(), args=args)


@pytest.mark.slow
@needs_trl
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_trl_pairs_are_refused_and_padding_free_works(tmp_path):
    import datasets
    import trl

    class SelectingSFT(SelectionMixin, trl.SFTTrainer):
        pass

    class SelectingDPO(SelectionMixin, trl.DPOTrainer):
        pass

    settings = trl_settings(tmp_path)
    answers = datasets.Dataset.from_list(
        [{"prompt": f"a b{n}", "completion": " c d", "source": f"s{n % 3}"} for n in range(24)]
    )
    options = {"processing_class": small_tokenizer(), "selection": SelectionConfig(pool=12, keep=5)}
    flat = SelectingSFT(
        model=tiny_model(),
        args=trl.SFTConfig(padding_free=True, max_length=None, **settings),
        train_dataset=answers,
        **options,
    )
    flat.train()
    assert len(spans(flat.last_batch)) == 5
    pairs = datasets.Dataset.from_list(
        [{"prompt": f"a b{n}", "chosen": " c d", "rejected": " d"} for n in range(24)]
    )
    preferring = SelectingDPO(
        model=tiny_model(),
        ref_model=tiny_model(),
        args=trl.DPOConfig(**settings),
        train_dataset=pairs,
        **options | {"selection": SelectionConfig(method="random", pool=12, keep=5)},
    )
    with pytest.raises(InvalidInputError, match="24 rows for 12 examples"):
        preferring.train()


# --- other models --------------------------------------------------------------------------------


def small(kind, **settings):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
        "pad_token_id": 0,
    }
    return kind(kind.config_class(**sizes, **settings))


@pytest.mark.slow
def test_a_masked_language_model_is_refused(tmp_path):
    """Its labels are not shifted: scored as a causal one, its gradients were wrong by 95 %."""
    model, batch = small(transformers.BertForMaskedLM), collate(plain_rows())
    for score in (gradient_features, example_losses):
        with pytest.raises(InvalidInputError, match="BertForMaskedLM does not have the loss"):
            score(model, batch)
    with pytest.raises(InvalidInputError, match="BertForMaskedLM"):
        make(tmp_path, model, plain_rows(), selection={"mode": "batch"}).train()
    # Nothing is scored, but the loss that counts examples equally would be a causal one.
    odd = {"method": "random", "mode": "batch", "loss": "example"}
    with pytest.raises(InvalidInputError, match="BertForMaskedLM"):
        make(tmp_path, model, plain_rows(), selection=odd).train()
    make(tmp_path, model, plain_rows(), selection=odd | {"loss": "token"}, max_steps=1).train()


def test_a_loss_of_its_own_is_refused():
    class Twice(transformers.LlamaForCausalLM):
        def forward(self, *given, labels=None, **named):
            output = super().forward(*given, labels=labels, **named)
            if labels is not None:
                output.loss = output.loss + output.logits.float().logsumexp(-1).square().mean()
            return output

    with pytest.raises(InvalidInputError, match="not have the loss of a causal language model"):
        gradient_features(Twice(tiny_model().config), collate(plain_rows()))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (transformers.LlamaForSequenceClassification, "LlamaForSequenceClassification"),
        (transformers.T5ForConditionalGeneration, "T5ForConditionalGeneration"),
    ],
)
def test_other_models_are_refused_when_the_trainer_is_made(tmp_path, kind, words):
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    if kind is transformers.T5ForConditionalGeneration:
        model = kind(transformers.T5Config(vocab_size=64, decoder_start_token_id=0, **sizes))
    else:
        model = small(kind)
    with pytest.raises(InvalidInputError, match=f"{words}.*Pass loss_fn=…"):
        make(tmp_path, model, plain_rows())


class Own(torch.nn.Module):
    """Nothing of transformers: a classifier of vectors."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh())
        self.classifier = torch.nn.Linear(8, 3)

    def forward(self, x, y=None):
        logits = self.classifier(self.body(x))
        if y is None:
            return {"logits": logits}
        return {"loss": torch.nn.functional.cross_entropy(logits, y), "logits": logits}


def own_losses(model, batch):
    logits = model(x=batch["x"])["logits"]
    return torch.nn.functional.cross_entropy(logits, batch["y"], reduction="none")


def vectors(count=48):
    draw = torch.Generator().manual_seed(0)
    xs = torch.randn(count, 6, generator=draw)
    return [{"x": x, "y": torch.tensor(n % 3), "source": f"s{n % 2}"} for n, x in enumerate(xs)]


def stacked(rows):
    return {key: torch.stack([row[key] for row in rows]) for key in ("x", "y")}


@pytest.mark.parametrize("layer", ["classifier", "body.0"])
def test_a_loss_function_gives_the_gradients_of_any_layer(layer):
    model, batch = Own(), stacked(vectors(7))
    found = gradient_features(model, batch, layer=layer, loss_fn=own_losses, score_batch_size=3)
    weight = model.get_submodule(layer).weight
    losses = own_losses(model, batch)
    for row, loss in enumerate(losses):
        (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
        assert torch.allclose(found.features[row], gradient.reshape(-1), atol=1e-6)
    assert torch.allclose(found.losses, losses)


@pytest.mark.parametrize("method", ["uniproto", "colm", "maxloss", "random", "gradnorm"])
def test_a_model_of_ones_own_trains(tmp_path, method):
    trainer = make(
        tmp_path,
        Own(),
        vectors(),
        selection={"method": method, "loss_fn": own_losses, "layer": "classifier"},
        collator=lambda rows: stacked(rows) | {"source": [row["source"] for row in rows]},
        remove_unused_columns=False,
        max_steps=2,
    )
    trainer.train()
    assert trainer.last_batch["x"].shape == (5, 6)


def test_a_model_of_ones_own_needs_a_loss_and_a_layer(tmp_path):
    def of(**options):
        settings = {"collator": stacked, "remove_unused_columns": False}
        return make(tmp_path, Own(), vectors(), selection={"mode": "batch", **options}, **settings)

    with pytest.raises(InvalidInputError, match=r"Own .*Pass loss_fn=…"):
        of()
    with pytest.raises(InvalidInputError, match="name the linear layer"):
        of(loss_fn=own_losses)
    mean = of(loss_fn=lambda model, batch: own_losses(model, batch).mean(), layer="classifier")
    with refused("loss_fn", InvalidInputError):
        mean.train()
