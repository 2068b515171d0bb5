"""The model: against an independent implementation, and its own promises."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.refusals import refused

from uniproto.errors import InvalidInputError
from uniproto.lm.pretraining.gradients import mean_loss, token_losses
from uniproto.lm.pretraining.model import (
    SIZES,
    ModelConfig,
    hidden_states,
    initial_params,
    model_config,
)
from uniproto.lm.pretraining.model import logits as uncompiled_logits

CONFIG = ModelConfig(vocab=60, width=32, layers=2, heads=4, kv_heads=2, hidden=48, length=12)
logits = jax.jit(uncompiled_logits, static_argnames=("config", "dtype"))


def some_tokens(rows=3, length=CONFIG.length, vocab=CONFIG.vocab, seed=0):
    return jax.random.randint(jax.random.key(seed), (rows, length), 0, vocab)


def some_params(config=CONFIG, scale=8.0):
    """Parameters with large weights, so that every part of the model shows in its output."""
    params = jax.jit(initial_params, static_argnums=0)(config, jax.random.key(1))
    return jax.tree.map(lambda values: values * scale if values.ndim > 1 else values, params)


@pytest.mark.slow
def test_logits_are_those_of_hugging_face_llama():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    params = some_params()
    params["layers"]["attention_norm"] *= 0.3
    params["final_norm"] *= 0.7
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=CONFIG.vocab,
            hidden_size=CONFIG.width,
            intermediate_size=CONFIG.hidden,
            num_hidden_layers=CONFIG.layers,
            num_attention_heads=CONFIG.heads,
            num_key_value_heads=CONFIG.kv_heads,
            rms_norm_eps=CONFIG.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": CONFIG.rope_theta},
            tie_word_embeddings=False,
        )
    ).eval()
    weights = {
        "model.embed_tokens.weight": params["embedding"],
        "model.norm.weight": params["final_norm"],
        "lm_head.weight": params["head"].T,
    }
    keys = CONFIG.heads * CONFIG.head_width
    values = keys + CONFIG.kv_heads * CONFIG.head_width
    for number in range(CONFIG.layers):
        layer = {name: stacked[number] for name, stacked in params["layers"].items()}
        place = f"model.layers.{number}."
        weights |= {
            place + "input_layernorm.weight": layer["attention_norm"],
            place + "post_attention_layernorm.weight": layer["mlp_norm"],
            place + "self_attn.q_proj.weight": layer["qkv"][:, :keys].T,
            place + "self_attn.k_proj.weight": layer["qkv"][:, keys:values].T,
            place + "self_attn.v_proj.weight": layer["qkv"][:, values:].T,
            place + "self_attn.o_proj.weight": layer["attention_out"].T,
            place + "mlp.gate_proj.weight": layer["gate_up"][:, : CONFIG.hidden].T,
            place + "mlp.up_proj.weight": layer["gate_up"][:, CONFIG.hidden :].T,
            place + "mlp.down_proj.weight": layer["down"].T,
        }
    theirs.load_state_dict({name: torch.tensor(np.asarray(w)) for name, w in weights.items()})
    tokens = some_tokens()
    with torch.no_grad():
        expected = theirs(torch.tensor(np.asarray(tokens)).long()).logits.numpy()
    ours = np.asarray(logits(params, tokens, CONFIG, dtype=jnp.float32))
    assert np.abs(expected).max() > 1
    assert np.allclose(ours, expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.slow
def test_recomputing_changes_no_gradient():
    params, tokens = some_params(scale=2.0), some_tokens()

    def total(params, recompute):
        hidden = hidden_states(params, tokens, CONFIG, dtype=jnp.float32, recompute=recompute)
        return (hidden**2).sum()

    gradient = jax.jit(jax.grad(total), static_argnums=1)
    kept, again = gradient(params, False), gradient(params, True)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), kept, again)


@pytest.mark.slow
@pytest.mark.parametrize("tokens_per_slice", [6, 10_000])
def test_the_sliced_loss_and_its_gradients_are_the_plain_ones(tokens_per_slice):
    keys = jax.random.split(jax.random.key(0), 3)
    hidden = jax.random.normal(keys[0], (3, 12, 8))
    head = jax.random.normal(keys[1], (8, 20))
    targets = jax.random.randint(keys[2], (3, 12), 0, 20)

    def plain(hidden, head):
        chances = jax.nn.log_softmax(hidden @ head)
        return -jnp.take_along_axis(chances, targets[..., None], axis=-1).mean()

    def sliced(hidden, head):
        return 3 * mean_loss(hidden, head, targets, tokens_per_slice)

    value, gradients = jax.jit(jax.value_and_grad(sliced, argnums=(0, 1)))(hidden, head)
    expected, expected_gradients = jax.jit(jax.value_and_grad(plain, argnums=(0, 1)))(hidden, head)
    assert float(value) == pytest.approx(3 * float(expected), rel=1e-6)
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        assert np.allclose(ours, 3 * theirs, atol=1e-6)
    losses, _ = token_losses(hidden, head, targets, tokens_per_slice)
    assert float(losses.mean()) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(("size", "millions"), [("60m", 60), ("500m", 508)])
def test_sizes_hold_what_their_names_say(size, millions):
    config = model_config(size, vocab=32_000, length=512)
    shapes = jax.eval_shape(lambda: initial_params(config, jax.random.key(0)))
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert count == config.parameters
    assert round(count / 1e6) == millions


def test_bad_shapes_are_refused_with_a_remedy():
    with refused("size", InvalidInputError):
        model_config("60mb", vocab=10, length=4)
    with refused("heads", InvalidInputError):
        ModelConfig(vocab=9, width=16, layers=1, heads=4, kv_heads=3, hidden=8, length=4)
    with refused("width", InvalidInputError):
        ModelConfig(vocab=9, width=12, layers=1, heads=4, kv_heads=4, hidden=8, length=4)
    with pytest.raises(InvalidInputError, match="vocab=0 must be at least 1"):
        model_config(next(iter(SIZES)), vocab=0, length=4)
