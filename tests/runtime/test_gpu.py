"""Products that lists and bounds rely on, in a process that asked torch for coarser ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uniproto
from uniproto.runtime.gpu import product


def test_a_product_keeps_its_digits_and_the_settings(torch: Any) -> None:
    left, right = torch.rand(40, 30), torch.rand(30, 20)
    matmul, asked = torch.backends.cuda.matmul, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert (left @ right).dtype == torch.bfloat16
            found = product(left, right)
        with pytest.raises(RuntimeError):
            product(left, left)
        assert torch.get_float32_matmul_precision() == "high"
        assert matmul.allow_tf32
    finally:
        torch.set_float32_matmul_precision(asked)
    np.testing.assert_allclose(found, left.double() @ right.double(), rtol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
def test_a_selection_amid_training_is_the_same(metric: str, pretended_gpu: Any) -> None:
    rows = np.random.default_rng(0).random((300, 5)).astype(np.float32)
    options = {"metric": metric, "method": "greedy", "compute": uniproto.Compute(device="cuda")}
    expected = uniproto.select(rows, 20, **options)
    with pretended_gpu.autocast("cpu", pretended_gpu.bfloat16):
        found = uniproto.select(rows, 20, **options)
        certificate = found.certify(seconds=1)
    assert (found.indices == expected.indices).all()
    assert certificate.lower_bound <= expected.cost
