"""What a step costs, counted against XLA's own count and against the products listed."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.flops import sequence_flops, step_flops
from benchmarks.pretraining_step import bare_products

from uniproto.lm.pretraining.model import model_config
from uniproto.lm.pretraining.pretrain_settings import StepSettings

CONFIG = model_config("60m", vocab=32_000, length=512)


def test_a_forward_pass_costs_two_operations_per_weight_and_token():
    short = model_config("60m", vocab=32_000, length=1)
    products = short.parameters - short.vocab * short.width  # the embedding is looked up
    norms = short.width * (2 * short.layers + 1)
    attention = 2 * short.layers * short.width
    assert sequence_flops(short) == 2 * (products - norms + attention)


def test_training_is_three_forward_passes_of_what_is_kept():
    settings = StepSettings()
    cost = step_flops(CONFIG, settings)
    assert cost["training"] == 3 * 64 * sequence_flops(CONFIG)
    assert cost["scoring"] == 128 * sequence_flops(CONFIG)
    assert cost["total"] == cost["scoring"] + cost["sketching"] + cost["training"]
    # The sketch is cheap beside the pass it reads; exact gradients are not.
    assert cost["sketching"] < 0.06 * cost["scoring"]
    exact = step_flops(CONFIG, replace(settings, features="exact"))
    assert exact["sketching"] > 10 * cost["sketching"]


def test_bare_products_are_the_training_part_with_attention_in_full():
    settings = StepSettings(method="full")
    listed = sum(product.flops for product in bare_products(CONFIG, settings))
    counted = step_flops(CONFIG, settings)["training"]
    above_the_diagonal = (
        6 * settings.pool * CONFIG.layers * CONFIG.width * CONFIG.length * (CONFIG.length - 1)
    )
    assert listed == counted + above_the_diagonal
