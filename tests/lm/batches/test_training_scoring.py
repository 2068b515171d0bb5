"""Scoring leaves no trace; Adam's scale; zeroth-order features; inner products over layers."""

import copy
import random

import accelerate
import numpy as np
import peft
import pytest
import torch
import transformers
from tests.refusals import refused

from uniproto.errors import InvalidInputError, UniprotoError
from uniproto.lm.features import inner_products
from uniproto.lm.features.gradient_features import (
    adam_divisor,
    gradient_features,
    zeroth_order_features,
)
from uniproto.lm.features.inner_products import gradient_inner_products
from uniproto.lm.features.layers import lora_projections, value_projection
from uniproto.lm.features.losses import example_losses
from uniproto.lm.finetune.run import CHECKPOINTING


def build(lora=True, dtype=torch.float32, layers=2, dropout=0.3, random_b=True):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_dropout=dropout,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.2)
    if lora:
        settings = peft.LoraConfig(
            r=3,
            lora_alpha=7,
            lora_dropout=dropout,
            target_modules=["q_proj", "v_proj", "down_proj"],
            init_lora_weights=not random_b,
        )
        model = peft.get_peft_model(model, settings)
    return model.to(dtype).train()


def make_batch(examples=6, tokens=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 64, (examples, tokens), generator=generator)
    mask = torch.ones_like(ids)
    labels = ids.clone()
    labels[:, :2] = -100
    ids[1, 6:], mask[1, 6:], labels[1, 6:] = 0, 0, -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def adam_of(model, **settings):
    trained = [each for each in model.parameters() if each.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-2, **settings)


def step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    return loss.detach()


def rows_of(batch, rows):
    return {key: value[rows] for key, value in batch.items()}


@pytest.fixture
def fresh_accelerate():
    """accelerate keeps one state per process."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


SCORES = {
    "gradient": lambda model, batch, adam: gradient_features(model, batch, normalise=adam),
    "losses": lambda model, batch, adam: example_losses(model, batch),
    "zeroth order": lambda model, batch, adam: zeroth_order_features(model, batch, normalise=adam),
    "inner products": lambda model, batch, adam: gradient_inner_products(model, batch, batch),
}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_a_step_with_scoring_equals_a_plain_step_bit_for_bit(score, checkpointing):
    pool = make_batch()
    plain, scored = build(), build()
    optimizers = [adam_of(plain), adam_of(scored)]
    if checkpointing:
        for model in (plain, scored):
            getattr(model, f"{CHECKPOINTING}_enable")({"use_reentrant": False})
            model.enable_input_require_grads()
    for number in range(3):
        chosen = rows_of(pool, [number, 3, 5])
        torch.manual_seed(number)
        expected = step(plain, optimizers[0], chosen)
        torch.manual_seed(number)
        SCORES[score](scored, pool, optimizers[1])
        assert torch.equal(step(scored, optimizers[1], chosen), expected)
        for ours, theirs in zip(scored.parameters(), plain.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    first, second = (optimizer.state_dict()["state"] for optimizer in optimizers)
    for key in first:
        assert all(torch.equal(first[key][name], second[key][name]) for name in first[key])


@pytest.mark.parametrize("score", SCORES)
def test_nothing_is_left_behind(score):
    model, pool = build(), make_batch()
    adam = adam_of(model)
    step(model, adam, pool)
    model.get_base_model().model.layers[0].eval()  # a mode of its own
    modes = [module.training for module in model.modules()]
    memory = [(each.data_ptr(), each.detach().clone(), each.grad) for each in model.parameters()]
    gradients = [None if grad is None else grad.clone() for _, _, grad in memory]
    flags = [each.requires_grad for each in model.parameters()]
    state = copy.deepcopy(adam.state_dict()["state"])
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    randoms = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    allowed = torch.is_grad_enabled()

    SCORES[score](model, pool, adam)

    assert [module.training for module in model.modules()] == modes
    assert [each.requires_grad for each in model.parameters()] == flags
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    for parameter, (pointer, before, grad), value in zip(
        model.parameters(), memory, gradients, strict=True
    ):
        assert parameter.data_ptr() == pointer
        assert torch.equal(parameter, before)
        assert parameter.grad is grad
        assert grad is None or torch.equal(grad, value)
    for key, entry in adam.state_dict()["state"].items():
        assert all(torch.equal(entry[name], state[key][name]) for name in entry)
    assert random.getstate() == randoms[0]
    assert np.array_equal(np.random.get_state()[1], randoms[1])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), randoms[2])
    assert torch.is_grad_enabled() == allowed


@pytest.mark.parametrize("score", SCORES)
def test_nothing_is_left_behind_after_an_error(score):
    model, pool = build(), make_batch()
    before = [each.detach().clone() for each in model.parameters()]
    pointers = [each.data_ptr() for each in model.parameters()]
    lost = model.get_base_model().model.norm
    handle = lost.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyError("broken")))
    with pytest.raises(KeyError):
        SCORES[score](model, pool, None)
    handle.remove()
    assert all(module.training for module in model.modules())
    assert torch.is_grad_enabled()
    assert [each.data_ptr() for each in model.parameters()] == pointers
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class TestAdam:
    @pytest.mark.parametrize("settings", [{}, {"amsgrad": True}, {"fused": True}])
    def test_features_are_divided_by_the_root_of_the_second_moment(self, settings):
        model, pool = build(), make_batch()
        adam = adam_of(model, **settings)
        plain = gradient_features(model, pool).features
        assert torch.equal(gradient_features(model, pool, normalise=adam).features, plain)
        for _ in range(3):
            step(model, adam, pool)
        plain = gradient_features(model, pool).features
        expected = []
        for part in value_projection(model).parts():
            state = adam.state[part.parameter]
            moment = state["max_exp_avg_sq" if "amsgrad" in settings else "exp_avg_sq"]
            expected.append((1e-8 + (moment / (1 - 0.999**3)).sqrt()).reshape(-1))
        found = gradient_features(model, pool, normalise=adam).features
        assert torch.allclose(found, plain / torch.cat(expected), rtol=1e-5)

    def test_a_coordinate_without_a_gradient_so_far_stays_plain(self):
        """After one step from B = 0 the second moment of A is exactly zero."""
        model, pool = build(random_b=False, dropout=0.0), make_batch()
        adam = adam_of(model)
        step(model, adam, pool)
        down, up = value_projection(model).parts()
        assert not adam.state[down.parameter]["exp_avg_sq"].any()
        size = down.parameter.numel()
        plain = gradient_features(model, pool).features
        found = gradient_features(model, pool, normalise=adam).features
        assert torch.equal(found[:, :size], plain[:, :size])
        assert not torch.equal(found[:, size:], plain[:, size:])
        assert up.parameter.numel() == found.shape[1] - size

    def test_wrapped_by_accelerate(self, fresh_accelerate):
        model, pool = build(), make_batch()
        adam = adam_of(model)
        step(model, adam, pool)
        expected = gradient_features(model, pool, normalise=adam)
        wrapped, prepared = accelerate.Accelerator(cpu=True).prepare(model, adam)
        assert type(prepared) is not type(adam)
        found = gradient_features(wrapped, pool, normalise=prepared)
        assert torch.equal(found.features, expected.features)

    def test_other_optimizers_are_refused_by_name(self):
        model, pool = build(), make_batch()
        trained = [each for each in model.parameters() if each.requires_grad]
        with pytest.raises(InvalidInputError, match=r"torch\.SGD"):
            gradient_features(model, pool, normalise=torch.optim.SGD(trained, lr=0.1))
        with refused("normalise", InvalidInputError):
            gradient_features(model, pool, normalise="adam")
        elsewhere = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))])
        with pytest.raises(InvalidInputError, match="does not hold the parameters"):
            gradient_features(model, pool, normalise=elsewhere)

    def test_eight_bit_states_are_refused_by_name(self):
        model = build()
        adam = adam_of(model)
        for part in value_projection(model).parts():
            adam.state[part.parameter] = {"step": 1, "state2": torch.zeros(3, dtype=torch.uint8)}
        with pytest.raises(InvalidInputError, match="AdamW"):
            adam_divisor(adam, value_projection(model).parts())


class TestMoments:
    """What gradients are divided by, as printed in the paper and as in CoLM."""

    def moments_of(self, model, adam):
        parts = value_projection(model).parts()
        state = [adam.state[part.parameter] for part in parts]
        first = torch.cat([each["exp_avg"].reshape(-1) for each in state])
        second = torch.cat([each["exp_avg_sq"].reshape(-1) for each in state])
        return first, second

    @pytest.mark.parametrize("size", [None, 2])
    @pytest.mark.parametrize("momentum", [False, True])
    def test_pool_is_what_the_paper_prints(self, momentum, size):
        model, pool = build(), make_batch()
        adam = adam_of(model)
        for _ in range(3):
            step(model, adam, pool)
        plain = gradient_features(model, pool).features
        first, second = self.moments_of(model, adam)
        mean = plain.mean(dim=0)
        expected = plain / (1e-8 + (0.999 * second + 0.001 * mean**2).sqrt())
        if momentum:
            expected = expected * (0.9 * first + 0.1 * mean)
        options = {"normalise": adam, "moments": "pool", "momentum": momentum}
        found = gradient_features(model, pool, score_batch_size=size, **options).features
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)
        narrow = gradient_features(model, pool, width=30, **options).features
        assert narrow.shape == (6, 30)

    @pytest.mark.parametrize("steps", [0, 3])
    def test_example_is_adams_step_on_each_example(self, steps):
        model, pool = build(dropout=0.0), make_batch()
        adam = adam_of(model)
        for _ in range(steps):
            step(model, adam, pool)
        plain = gradient_features(model, pool).features
        found = gradient_features(model, pool, normalise=adam, moments="example").features
        for row in range(6):
            copied, other = build(dropout=0.0), None
            copied.load_state_dict(model.state_dict())
            other = adam_of(copied, weight_decay=0.0)
            if steps:
                other.load_state_dict(copy.deepcopy(adam.state_dict()))
                for group in other.param_groups:
                    group["weight_decay"] = 0.0
            before = [part.of(part.parameter).clone() for part in value_projection(copied).parts()]
            step(copied, other, rows_of(pool, [row]))
            after = [part.of(part.parameter) for part in value_projection(copied).parts()]
            moved = (torch.cat(before) - torch.cat(after)) / 1e-2
            clear = plain[row].abs() > 1e-6  # not lost in ε
            assert torch.allclose(found[row][clear], moved[clear], rtol=2e-3, atol=2e-4)

    def test_colm_is_no_multiple_of_one_direction(self):
        model, pool = build(), make_batch()
        adam = adam_of(model)
        step(model, adam, pool)
        options = {"normalise": adam, "moments": "example", "width": None}
        whole = zeroth_order_features(model, pool, **options).features
        assert torch.linalg.matrix_rank(whole) > 1
        narrow = zeroth_order_features(model, pool, **options | {"width": 20}).features
        kept = whole.abs().mean(0).topk(20).indices.sort().values
        assert torch.equal(narrow, whole[:, kept])

    def test_alignment_waits_for_a_v_that_says_something(self):
        """After one step nearly all of |g/√v|² lies in a few coordinates."""
        model, pool = build(dropout=0.0), make_batch()
        adam = adam_of(model)
        step(model, adam, rows_of(pool, [0]))
        plain = gradient_features(model, pool).features
        early = gradient_features(model, pool, normalise=adam).features
        share = early.square().topk(10).values.sum() / early.square().sum()
        assert share > 0.5
        waiting = gradient_features(model, pool, normalise=adam, align_after=3).features
        assert torch.equal(waiting, plain)
        for _ in range(2):
            step(model, adam, pool)
        found = gradient_features(model, pool, normalise=adam, align_after=3).features
        assert not torch.equal(found, gradient_features(model, pool).features)


class TestMixedPrecision:
    def test_accelerate_runs_the_model_in_bfloat16(self, fresh_accelerate):
        model, pool = build(), make_batch()
        exact = gradient_features(model, pool)
        wrapped = accelerate.Accelerator(cpu=True, mixed_precision="bf16").prepare(model)
        found = gradient_features(wrapped, pool)
        assert not torch.equal(found.features, exact.features)
        cosine = torch.nn.functional.cosine_similarity(found.features, exact.features)
        assert cosine.min() > 0.98
        assert torch.allclose(found.losses, exact.losses, rtol=0.02)


class TestZerothOrder:
    @pytest.mark.parametrize("fused", [False, True])
    def test_slopes_are_directional_derivatives(self, fused):
        model, pool = build(dtype=torch.float64), make_batch()
        if fused:  # GPT-2: only the part that makes values moves
            config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=64)
            model = transformers.GPT2LMHeadModel(config).double()
        exact = gradient_features(model, pool)
        found = zeroth_order_features(model, pool, width=None, epsilon=1e-4, seed=4)
        direction = torch.randn(
            exact.features.shape[1], generator=torch.Generator().manual_seed(4)
        ).double()
        expected = (exact.features @ direction)[:, None] * direction
        # Llama's norms compute in single precision, whatever the model's.
        close = (1e-6 if fused else 1e-2) * expected.abs().max()
        assert torch.allclose(found.features, expected, rtol=0, atol=close)
        assert torch.allclose(found.losses, exact.losses, rtol=1e-6)
        assert torch.linalg.matrix_rank(found.features) == 1

    @pytest.mark.parametrize("normalised", [False, True])
    def test_the_largest_coordinates_are_kept(self, normalised):
        model, pool = build(), make_batch()
        adam = adam_of(model)
        step(model, adam, pool)
        adam = adam if normalised else None
        whole = zeroth_order_features(model, pool, width=None, normalise=adam).features
        narrow = zeroth_order_features(model, pool, width=20, normalise=adam).features
        for rows in ([0, 1], [2, 3, 4, 5]):  # whatever the source
            kept = whole[rows].abs().mean(0).topk(20).indices.sort().values
            assert torch.equal(narrow[rows], whole[rows][:, kept])
        wide = zeroth_order_features(model, pool, normalise=adam).features
        assert torch.equal(wide, whole)


def explicit_gradients(model, batch, projections):
    """A loop of single-example backward passes over all parameters of the layers."""
    parts = [part for projection in projections for part in projection.parts()]
    model.eval()
    rows = []
    for row in range(len(batch["labels"])):
        logits = model(**rows_of(batch, slice(row, row + 1))).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits, batch["labels"][row, 1:])
        for part in parts:
            part.parameter.requires_grad_(True)
        grads = torch.autograd.grad(loss, [part.parameter for part in parts])
        rows.append(torch.cat([grad.reshape(-1) for grad in grads]))
    model.train()
    return torch.stack(rows)


class TestInnerProducts:
    @pytest.mark.parametrize("size", [3, 8])
    @pytest.mark.parametrize("form", ["ghost", "explicit", "auto"])
    def test_exact_forms_equal_a_loop(self, form, size, monkeypatch):
        monkeypatch.setattr(inner_products, "_GHOST_BYTES", 8 * 9 * 9 * 2)
        model, pool, validation = build(dtype=torch.float64), make_batch(), make_batch(3, 7, seed=9)
        projections = lora_projections(model)
        assert len(projections) == 6
        ours = explicit_gradients(model, pool, projections)
        theirs = explicit_gradients(model, validation, projections)
        found = gradient_inner_products(model, pool, validation, form=form, score_batch_size=size)
        assert torch.allclose(found.pool, ours @ ours.T, rtol=1e-10)
        assert torch.allclose(found.validation, ours @ theirs.T, rtol=1e-10, atol=1e-10)
        assert torch.allclose(found.losses, example_losses(model, pool))
        assert torch.allclose(found.validation_losses, example_losses(model, validation))
        assert set(found.forms.values()) <= {"ghost", "explicit"}

    def test_the_sketch_is_near_and_unbiased(self):
        model, pool = build(dtype=torch.float64), make_batch()
        exact = gradient_inner_products(model, pool).pool
        scale = exact.diagonal().sqrt()
        drawn = [
            gradient_inner_products(model, pool, form="sketch", keep_bytes=1, seed=100 * seed).pool
            for seed in range(12)
        ]
        error = (torch.stack(drawn) - exact) / (scale[:, None] * scale)
        assert error.abs().max() < 0.5
        assert error.mean(0).abs().max() < 0.12
        forms = gradient_inner_products(model, pool, keep_bytes=1).forms
        assert set(forms.values()) == {"sketch"}

    def test_a_model_without_lora_is_refused(self):
        model, pool = build(lora=False, dtype=torch.float64), make_batch()
        with refused("model", InvalidInputError):
            gradient_inner_products(model, pool)

    def test_examples_that_are_not_finite(self):
        model, pool = build(), make_batch()
        pool["labels"][2] = -100
        found = gradient_inner_products(model, pool, pool)
        bad = torch.zeros(6, 6, dtype=torch.bool)
        bad[2], bad[:, 2] = True, True
        assert torch.equal(found.pool.isnan(), bad)
        assert torch.equal(found.validation.isnan(), bad)


def test_a_layer_that_does_not_run_is_named():
    model, pool = build(), make_batch()
    model.get_base_model().spare = torch.nn.Linear(4, 4)
    with pytest.raises(UniprotoError, match="spare"):
        gradient_features(model, pool, layer="spare")
