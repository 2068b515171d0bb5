"""Programs that torchrun starts twice, as on a machine with two devices."""

from __future__ import annotations

import os
import subprocess
import sys


def run_twice(*program: str) -> None:
    """Two processes of one program that find one another; fails if either does."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"),
            *program,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr[-4000:]
