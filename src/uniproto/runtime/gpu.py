"""GPU detection without loading torch, and matrix products in full precision."""

from __future__ import annotations

import ctypes
import sys
from typing import Any


def driver_sees_gpu() -> bool:
    """Ask the CUDA driver, which is fast even if there is none."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return (
        driver.cuInit(0) == 0
        and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )


def product(left: Any, right: Any) -> Any:
    """`left @ right` in the precision of their dtype, whatever torch is set to.

    Training scripts may enable TF32 or autocast; exact neighbour lists and proven bounds must not
    depend on that.
    """
    import torch
    from torch.backends.cuda import matmul

    exact: dict[str, Any] = {"allow_fp16_reduced_precision_reduction": False}
    if hasattr(matmul, "fp32_precision"):
        exact["fp32_precision"] = "ieee"
    else:
        exact["allow_tf32"] = False
    before = {name: getattr(matmul, name) for name in exact}
    try:
        for name, value in exact.items():
            setattr(matmul, name, value)
        with torch.autocast(left.device.type, enabled=False):
            return left @ right
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)
