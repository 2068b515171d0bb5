"""Gradients and hidden states of a language model, offline: what they are, skip, cut and cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import peft
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from tests.refusals import refused

import uniproto
from support.finetuning import tiny_model
from uniproto.cli import main
from uniproto.errors import InputFileError, InvalidInputError, UniprotoError
from uniproto.lm import Gradients, HiddenStates, gradients, hidden_states
from uniproto.lm.features.adam_moments import Moments, adam_steps
from uniproto.lm.features.gradient_features import projected
from uniproto.lm.features.language import what_is_wrong_with
from uniproto.lm.features.losses import NO_LABEL
from uniproto.lm.features.tokens import encoded
from uniproto.lm.finetune.lora import lora_targets
from uniproto.lm.models import load_model

TEMPLATE = "Q {instruction} A "
ROWS = [
    {"source": "sums", "instruction": f"{a}+{b}", "output": str(a + b) * (1 + a)}
    for a in range(4)
    for b in range(3)
]
CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return tiny_model(tmp_path_factory.mktemp("model"), positions=128, spread=0.3)


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory) -> str:
    folder = tiny_model(tmp_path_factory.mktemp("chat"), positions=128, spread=0.3)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory) -> str:
    """LoRA weights, and Adam's moments after two steps."""
    network, _ = load_model(model)
    torch.manual_seed(3)
    network = peft.get_peft_model(
        network, peft.LoraConfig(r=2, target_modules=lora_targets(network), task_type="CAUSAL_LM",
                                 init_lora_weights=False),
    )  # fmt: skip
    trained = [each for each in network.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    for step in range(2):
        ids = torch.tensor([[5 + step, 6, 7, 8]])
        network(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    folder = tmp_path_factory.mktemp("adapter")
    network.save_pretrained(folder)
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    return str(folder)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNIPROTO_CACHE", str(tmp_path / "cache"))


def one_by_one(network, tokenizer, rows, parameters):
    """Gradients by single backward passes, concatenated over the parameters."""
    found = []
    pairs = [(row["instruction"], row["output"]) for row in rows]
    for one in encoded(pairs, tokenizer, TEMPLATE, 128):
        network.zero_grad()
        batch = {name: torch.tensor([values]) for name, values in one.inputs().items()}
        network(**batch).loss.backward()
        found.append(torch.cat([p.grad.reshape(-1) for p in parameters]).clone())
    return torch.stack(found)


def test_gradients_are_those_of_single_backward_passes(model):
    found = gradients(ROWS, model=model, template=TEMPLATE, width=10**6, batch_size=5)
    network, tokenizer = load_model(model)
    weight = network.model.layers[-1].self_attn.v_proj.weight
    expected = one_by_one(network, tokenizer, ROWS, [weight])
    np.testing.assert_allclose(found.vectors, expected.numpy(), atol=2e-6)
    narrow = gradients(ROWS, model=model, template=TEMPLATE, width=32)
    np.testing.assert_allclose(narrow.vectors, projected(expected, 32, 0).numpy(), atol=5e-6)


@pytest.mark.parametrize("adam", [False, True])
def test_gradients_of_lora_layers(model, adapter, adam):
    """Projected, they have the inner products of the whole gradients, nearly."""
    width = 4096
    options = {"model": model, "template": TEMPLATE, "adapter": adapter}
    layer = "adam" if adam else "lora"
    found = gradients(ROWS[:5], width=width, layer=layer, batch_size=2, **options)
    network, tokenizer = load_model(model)
    network = peft.PeftModel.from_pretrained(network, adapter, is_trainable=True).eval()
    trained = [each for each in network.parameters() if each.requires_grad]
    whole = one_by_one(network, tokenizer, ROWS[:5], trained)
    if adam:
        state = torch.load(Path(adapter, "optimizer.pt"), weights_only=True)["state"]
        mean, square = (
            torch.cat([state[n][key].reshape(-1) for n in range(len(trained))])
            for key in ("exp_avg", "exp_avg_sq")
        )
        whole = adam_steps(whole, Moments(mean, square, (0.9, 0.999), 1e-8))
    whole, rows = whole.numpy(), found.vectors
    np.testing.assert_allclose(
        rows @ rows.T, whole @ whole.T, atol=0.2 * np.abs(whole @ whole.T).max()
    )
    lengths = np.linalg.norm(rows, axis=1) / np.linalg.norm(whole, axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=0.15)


@pytest.mark.parametrize("pooling", ["mean", "position"])
def test_hidden_states_are_means_over_tokens(model, pooling):
    found = hidden_states(ROWS[:4], model=model, template=TEMPLATE, pooling=pooling)
    network, tokenizer = load_model(model)
    pairs = [(row["instruction"], row["output"]) for row in ROWS[:4]]
    for vector, one in zip(found.vectors, encoded(pairs, tokenizer, TEMPLATE, 128), strict=True):
        with torch.no_grad():
            states = (
                network.model(torch.tensor([one.inputs()["input_ids"]]))
                .last_hidden_state[0]
                .numpy()
            )
        weights = np.arange(1, len(states) + 1) if pooling == "position" else None
        expected = np.average(states, axis=0, weights=weights)
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_an_unknown_pooling_is_refused(model):
    with refused("pooling", InvalidInputError):
        hidden_states(ROWS[:1], model=model, pooling="last")


def test_batches_and_the_cache_change_nothing(model):
    options = {"model": model, "template": TEMPLATE, "width": 64}
    first = gradients(ROWS, batch_size=3, **options)
    again = gradients(ROWS[::-1], **options)
    assert again.notes["from_cache"] == len(ROWS)
    np.testing.assert_array_equal(again.vectors, first.vectors[::-1])
    fresh = gradients(ROWS, cache=False, batch_size=7, **options)
    np.testing.assert_allclose(fresh.vectors, first.vectors, atol=1e-6)
    other = gradients(ROWS[:2], **{**options, "width": 16})  # another question, another cache
    assert other.notes["computed"] == 2


def test_rows_without_an_answer_are_skipped_and_counted(model):
    rows = [*ROWS[:2], {"instruction": "1", "output": "  "}, *ROWS[2:4]]
    found = gradients(rows, model=model, template=TEMPLATE, width=16)
    assert found.left_out == [(2, "no answer token")]
    assert found.rows.tolist() == [0, 1, 3, 4]
    with pytest.raises(InputFileError, match=r"Every row .*row 1 \(answer: missing\)"):
        gradients([ROWS[0], {"instruction": "1", "output": None}], model=model, template=TEMPLATE)


@pytest.mark.parametrize(
    ("value", "vectors", "options"),
    [
        (Gradients, gradients, {"width": 32}),
        (HiddenStates, hidden_states, {"pooling": "position"}),
    ],
)
def test_a_selection_by_a_language_model(model, tmp_path, value, vectors, options):
    """Rows without an answer keep their numbers; files, tables and lists of dicts are the same."""
    rows = [*ROWS[:3], {"source": "sums", "instruction": "none", "output": " "}, *ROWS[3:]]
    kept = [row for row in range(len(rows)) if row != 3]
    found = vectors([rows[row] for row in kept], model=model, **options)
    expected = uniproto.select(found.vectors, 4, metric="cosine")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source in (path, rows):
        selection = uniproto.select(source, 4, features=value(model, **options))
        assert selection.indices.tolist() == [kept[row] for row in expected.indices]
        assert selection.cost == pytest.approx(expected.cost)
        assert selection.details.given.without[0].tolist() == [3]
    of_target = uniproto.select(path, 2, ROWS[5:8], features=value(model, **options))
    aim = vectors(ROWS[5:8], model=model, **options).vectors
    by_hand = uniproto.select(found.vectors, 2, aim, metric="cosine")
    assert of_target.indices.tolist() == [kept[row] for row in by_hand.indices]


def test_long_examples_keep_an_answer_token(model):
    rows = [{"instruction": "7" * 300, "output": "1"}, {"instruction": "1", "output": "2" * 300}]
    found = gradients(rows, model=model, template=TEMPLATE, width=16)  # the model reads 128
    assert len(found) == found.notes["truncated"] == 2


def test_conversations_go_through_the_chat_template(chat_model):
    talk = [
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "and 1"},
        {"role": "assistant", "content": "5"},
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(chat_model)
    (one,) = encoded([talk], tokenizer, TEMPLATE, 128)
    said = "".join(
        tokenizer.decode([token]) if label != NO_LABEL else "_"
        for token, label in zip(*one.inputs().values(), strict=True)
    )
    assert said.replace("_", "") == "4</assistant>5</assistant>"
    pair = gradients([("2+2", "4")], model=chat_model, template="chat", width=64)
    same = gradients([{"messages": talk[:2]}], model=chat_model, width=64)
    np.testing.assert_allclose(pair.vectors, same.vectors, atol=1e-6)


def test_an_adapter_that_fits_in_part_is_refused(model, adapter, tmp_path):
    """Of what is missing there would be nothing, and the features would be others."""
    from safetensors.torch import load_file, save_file

    partly = Path(shutil.copytree(adapter, tmp_path / "adapter"), "adapter_model.safetensors")
    weights = load_file(partly)
    del weights[min(weights)]
    save_file(weights, partly, {"format": "pt"})
    options = {"model": model, "template": TEMPLATE, "adapter": str(partly.parent)}
    for look in (hidden_states, gradients):
        with pytest.raises(InputFileError, match=r"fit the model.*missing adapter keys"):
            look(ROWS, **options)


def test_half_a_character_is_skipped_or_told(model):
    rows = [*ROWS[:2], {"instruction": "\ud83d", "output": "2"}]
    options = {"model": model, "template": TEMPLATE}
    found = hidden_states(rows, on_error="skip", **options)
    assert found.left_out == [(2, "prompt: it contains a lone surrogate")]
    with pytest.raises(InputFileError, match="row 2 "):
        hidden_states(rows, **options)
    message = {"role": "assistant", "content": "\ud83d"}
    assert what_is_wrong_with([message]) == "a message: it contains a lone surrogate"
    assert what_is_wrong_with("\ud83d") == "it contains a lone surrogate"


def test_what_cannot_be_computed_is_refused_before_anything_is_loaded(model, adapter, tmp_path):
    for options, message in (
        ({"layer": "model.layers.9.v_proj"}, "must name one linear layer .*layers.1"),
        ({"layer": "lora"}, "need an adapter"),
        ({"adapter": str(tmp_path)}, "Name the adapter"),
        ({"adam": True, "adapter": adapter}, "'adam' is no parameter"),
        ({"template": "no place"}, "must hold {instruction}"),
        ({"width": 0}, "width"),
    ):
        with pytest.raises(UniprotoError, match=message):
            gradients(ROWS, model=model, **options)
    with pytest.raises(InputFileError, match="no prompt and answer among"):
        gradients([{"a": "1", "b": "2"}], model=model)
    with refused("template", InvalidInputError):
        gradients([[{"role": "assistant", "content": "x"}]], model=model)


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def rows_file(inside) -> str:
    lines = [*ROWS, {"source": "none", "instruction": "?", "output": ""}]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return "rows.jsonl"


def test_embed_gradients(rows_file, model, capsys):
    words = ["embed", rows_file, "--gradients", "--model", model, "--width", "64",
             "--template", TEMPLATE, "-o", "vectors.parquet"]  # fmt: skip
    assert main(words) == 0
    said = capsys.readouterr().out
    assert f"{len(ROWS)} vectors of 64 numbers" in said
    assert "rows skipped: 1: row 12 (no answer token)" in said
    table = pq.read_table("vectors.parquet")
    expected = gradients(ROWS, model=model, template=TEMPLATE, width=64)
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), expected.vectors)
    assert table["instruction"].to_pylist() == [row["instruction"] for row in ROWS]
    assert main([*words[:-1], "hidden.parquet", "--hidden"]) == 2
    assert "--gradients excludes --hidden" in capsys.readouterr().err
    words.remove("--gradients")
    assert main([*words[:-1], "hidden.parquet", "--hidden"]) == 0
    assert len(pq.read_table("hidden.parquet")["embedding"][0]) == 16


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gradients"], "--gradients needs --model"),
        (["--gradients", "--text", "output"], "--text excludes --gradients"),
        (["--gradients", "--prompt", "q"], "Name them: --prompt and --answer"),
        (["--gradients", "both"], "must be one of lora, value"),
        (["--prompt", "instruction"], "--prompt needs --gradients or --hidden"),
        (["--width", "12", "--text", "output"], "--width needs --gradients or --hidden"),
        (["--bf16", "--text", "output"], "--bf16 needs --gradients or --hidden"),
        (["--adapter", "a", "--text", "output"], "--adapter needs --gradients or --hidden"),
        (["--num-cpus", "2", "--text", "output"], "--num-cpus needs --engine ray"),
    ],
)
def test_embed_examples_says_what_is_wrong(words, message, rows_file, model, capsys):
    given = words if "--model" in message or "--text" in words else [*words, "--model", model]
    try:
        status = main(["embed", rows_file, *given, "-o", "v.parquet"])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_embedding_on_ray_gives_the_same_vectors(rows_file, model):
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    words = ["embed", rows_file, "--gradients", "--model", model, "--width", "32",
             "--template", TEMPLATE, "--quiet"]  # fmt: skip
    assert main([*words, "--no-cache", "-o", "here.parquet"]) == 0
    assert main([*words, "--engine", "ray", "--num-cpus", "1", "-o", "there.parquet"]) == 0
    here, there = (
        np.stack(pq.read_table(name)["embedding"].to_numpy())
        for name in ("here.parquet", "there.parquet")
    )
    np.testing.assert_allclose(here, there, atol=1e-6)
    found = gradients(ROWS, model=model, template=TEMPLATE, width=32)
    assert found.notes["from_cache"] == len(ROWS)  # Ray's vectors are in the same cache


def test_tool_calls_are_read_and_a_message_without_anything_is_not():
    from uniproto.lm.features.language import what_is_wrong_with

    call = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
    talk = [
        {"role": "user", "content": "1 + 1?", "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": call},
        {"role": "tool", "content": "2"},
    ]
    assert what_is_wrong_with(talk) is None
    assert what_is_wrong_with([*talk, {"role": "assistant", "content": None}]) is not None
