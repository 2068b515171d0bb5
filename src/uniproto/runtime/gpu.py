"""Whether there is a GPU, without loading torch, and products on it that can be relied on."""

from __future__ import annotations

import ctypes
import sys
from typing import Any


def driver_sees_gpu() -> bool:
    """Ask the CUDA driver itself, which takes no time where there is none."""
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
    """`left @ right` in the precision of their numbers, whatever the process told torch to use.

    Training scripts ask for faster, coarser products (TF32, autocast); lists that are called
    exact, and bounds that prove something, must not depend on it.
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
