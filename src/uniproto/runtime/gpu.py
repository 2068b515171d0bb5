"""Find out whether there is a GPU, without loading torch."""

from __future__ import annotations

import ctypes
import sys


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
