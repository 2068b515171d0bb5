"""Several processes that train one model: how they leave."""

from __future__ import annotations

import gc

from uniproto.errors import MissingExtraError

try:
    from torch import distributed
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Fine-tuning", "train") from error


def leave_together() -> None:
    """Wait for the other processes of this run and close the connections to them.

    Call it when no trainer and no wrapped model is left: they keep the process group, and with it
    threads that hold tensors, alive. Such a thread that lets go of a tensor while the interpreter
    is already shutting down ends the process with "terminate called without an active exception".
    Without other processes nothing happens.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    distributed.barrier()  # a process that leaves early takes the others' connections along
    distributed.destroy_process_group()
    gc.collect()  # trainers refer to themselves in circles; their threads end with them
