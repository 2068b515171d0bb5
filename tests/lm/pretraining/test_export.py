"""What leaves a pretraining run: a model for transformers, a plain tree, text, the choice alone."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from uniproto.algorithm import uniprot
from uniproto.cli import main
from uniproto.errors import InvalidInputError
from uniproto.lm import pretraining
from uniproto.lm.pretraining import gradients, model_config
from uniproto.lm.pretraining.checkpoints import plain_tree
from uniproto.lm.pretraining.gradients import l1_distances
from uniproto.lm.pretraining.model import hidden_states
from uniproto.lm.pretraining.train import sampled
from uniproto.problem.masses import integer_masses

# One program each, which takes a fraction of what their many operations take to compile.
initial_params = jax.jit(pretraining.initial_params, static_argnums=0)
choose_rows = jax.jit(pretraining.choose_rows, static_argnums=1, static_argnames="metric")


@pytest.mark.slow
def test_an_exported_model_is_one_of_transformers(whole, tokens, tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    transformers = pytest.importorskip("transformers", reason="needs the extra 'train'")
    pytest.importorskip("peft", reason="needs the extra 'train'")
    model = tmp_path / "model"
    export = ["pretrain", "-o", str(whole), "--tokens", str(tokens), "--export", "hf", str(model)]
    assert main(export) == 0
    said = capsys.readouterr().out
    assert "LlamaForCausalLM after 12 steps" in said
    assert float(said.rsplit(maxsplit=1)[-1]) < 1e-4  # of a score
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    assert type(loaded) is transformers.LlamaForCausalLM
    assert tokenizer.decode(tokenizer("the cat sat")["input_ids"]) == "the cat sat"
    inputs = tokenizer("the cat", return_tensors="pt")
    with torch.no_grad():
        assert loaded.generate(**inputs, max_new_tokens=4, do_sample=False).shape[1] > 2
    # a second export does not overwrite, and a folder that is no run is named
    assert main(export) == 2
    assert "there are files here" in capsys.readouterr().err
    assert main(["pretrain", "-o", str(tmp_path / "no"), "--export", "hf", str(model)]) == 2
    assert "no pretraining run here" in capsys.readouterr().err
    assert main(["pretrain", "-o", str(whole), "--export", "onnx", "x"]) == 2
    assert "--export must be" in capsys.readouterr().err
    # and it can be tuned
    data = tmp_path / "train.jsonl"
    rows = [{"instruction": "the cat", "output": f"sat {n}", "source": "s"} for n in range(12)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ("--model", str(model), "--data", str(data), "--out", str(tmp_path / "tuned"))
    more = ("--pool", "4", "--keep", "2", "--steps", "1", "--max-length", "16", "--lora-r", "2")
    others = ("--template", "Q {instruction} A", "--device", "cpu", "--quiet", "--validation", "0")
    assert main(["finetune", *asked, *more, *others]) == 0


@pytest.mark.slow
def test_a_checkpoint_is_a_plain_tree(whole):
    (last,) = sorted((whole / "checkpoints").glob("[0-9]*"))[-1:]
    with ocp.StandardCheckpointer() as reader:
        tree = reader.restore((last / "state").resolve())
    assert set(tree) == {"params", "optimizer", "step", "key"}
    assert set(tree["params"]) == {"embedding", "layers", "final_norm", "head"}
    assert tree["params"]["layers"]["qkv"].shape[0] == 2
    assert int(tree["step"]) == 12
    assert set(plain_tree({"a": [jnp.ones(1), {"b": jnp.ones(1)}]})["a"]) == {"0", "1"}


@pytest.mark.slow
def test_samples_begin_as_given_and_depend_on_seed_and_step():
    config = model_config("tiny", vocab=50, length=16)
    params = initial_params(config, jax.random.key(0))
    found = [
        sampled(params, np.arange(17), config, "float32", seed=seed)
        for seed in ((0, 1), (0, 1), (0, 2), (1, 1))
    ]
    assert all(each[:8] == list(range(8)) for each in found)
    assert found[0] == found[1]
    assert len({tuple(each) for each in found}) == 3


# --- CoLM's distances ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 10**6])
def test_the_largest_coordinates_are_those_of_the_gradients(count, monkeypatch):
    monkeypatch.setattr(gradients, "_COLUMNS_AT_ONCE", 13)
    largest_gradients = jax.jit(gradients.largest_gradients, static_argnums=(3, 4))
    exact_distances = jax.jit(gradients.exact_distances, static_argnums=3)
    config = model_config("tiny", vocab=50, length=8)
    params = initial_params(config, jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (5, 9), 0, 50)
    read = jax.jit(hidden_states, static_argnames=("config", "dtype"))
    hidden = read(params, tokens[:, :-1], config, dtype=jnp.float32)
    head, targets = params["head"], tokens[:, 1:]
    scores = jax.nn.softmax(hidden @ head)
    whole = jnp.einsum("btw,btv->bwv", hidden, scores - jax.nn.one_hot(targets, 50))
    whole = np.asarray(whole).reshape(5, -1)
    losses, found = largest_gradients(hidden, head, targets, count, 1000)
    kept = np.argsort(-np.abs(whole).mean(axis=0))[:count]
    expected = np.abs(whole[:, None, kept] - whole[None][:, :, kept]).sum(axis=2)
    np.testing.assert_allclose(l1_distances(found), expected, rtol=1e-4, atol=1e-4)
    if count > whole.shape[1]:
        same, exact = exact_distances(hidden, head, targets, 1000)
        np.testing.assert_allclose(l1_distances(found), exact, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(losses, same, rtol=1e-6)


# --- the choice alone ----------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 8, 12]), st.sampled_from(["cosine", "dot"])
)
def test_the_choice_is_that_of_the_algorithm(seed, keep, metric):
    features = np.random.default_rng(seed).normal(size=(12, 5)).astype(np.float32)
    products = features.astype(np.float64) @ features.T
    costs = products.max() - products
    if metric == "cosine":
        lengths = np.sqrt(np.diag(products))
        costs = 1 - products / lengths[:, None] / lengths
        np.fill_diagonal(costs, 0)
    costs = np.round((costs + costs.T) / 2, 6)  # ties are ties: two nearest to each other
    expected = uniprot(costs, keep, integer_masses(keep, 12))[0]
    assert choose_rows(features, keep, metric=metric).tolist() == expected


def test_rows_that_cannot_be_used_are_never_chosen():
    features = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    features[1] = np.nan
    features[2] = 0
    usable = np.ones(8, bool)
    usable[3] = False
    chosen = choose_rows(features, 5, usable=usable)
    assert sorted(chosen.tolist()) == [0, 4, 5, 6, 7]
    assert choose_rows(features.astype(jnp.bfloat16), 2).dtype == jnp.int32


def test_bad_arguments_of_the_choice():
    features = jnp.ones((4, 2))
    with refused("keep", InvalidInputError):
        choose_rows(features, 5)
    with refused("metric", InvalidInputError):
        choose_rows(features, 2, metric="l1")
