"""One GPU: a training step that keeps 64 of a pool of 128, compared with a step on all 128.

The model is a Llama of about a billion parameters with random weights, in bfloat16: what a step
costs does not depend on what the weights say. The clock runs over whole steps (scoring, choosing,
forward, backward, optimizer), after warm-up, with the GPU waited for. The step on all 128
accumulates gradients over two halves.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import Report, median
from benchmarks.gpu import no_gpu

TITLE = "one GPU: a step on 64 of 128 sequences of 512, Llama of 1.2 billion parameters, bf16"
POOL, KEEP, LENGTH, SOURCES = 128, 64, 512, 14
FEATURE_WIDTH = 512
ANSWER_SHARE = 0.5  # of a sequence's tokens; the rest is the prompt, which has no loss
# Kind of training: (relative to the step on all, reach)
KINDS = {"full": 0.88, "checkpointing": 0.88, "lora": 1.05}
REACH_CHOOSING, REACH_MEMORY = 0.03, 1.15


def run(report: Report, quick: bool) -> None:
    reason = no_gpu()
    if reason:
        report.row("GPU", unavailable=reason)
        return
    import torch

    report.note(gpu=torch.cuda.get_device_name())
    for kind, reach in KINDS.items():
        measure(report, kind, reach, quick)
        gc.collect()
        torch.cuda.empty_cache()


def measure(report: Report, kind: str, reach: float, quick: bool) -> None:
    import torch

    from uniproto.lm import BatchSelector
    from uniproto.lm.features.gradient_features import gradient_features

    model = make_model(kind, quick)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    batch = make_batch(model.config.vocab_size)
    sources = np.arange(POOL) % SOURCES
    selector = BatchSelector("uniproto", "source", KEEP)
    parts: dict[str, list[float]] = {"scoring": [], "choosing": []}

    def step(rows: Any) -> None:
        pieces = rows.split(KEEP)  # activations of all 128 do not fit next to a billion weights
        for piece in pieces:
            given = {name: values[piece] for name, values in batch.items()}
            (model(**given).loss / len(pieces)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def selected_step() -> None:
        begin = _now()
        scored = gradient_features(model, batch, width=FEATURE_WIDTH, normalise=optimizer)
        between = _now()
        rows = selector(scored.features, sources=sources, losses=scored.losses)
        chosen = torch.from_numpy(rows).to(model.device)
        parts["scoring"].append(between - begin)
        parts["choosing"].append(_now() - between)
        step(chosen)

    everything = torch.arange(POOL, device=model.device)
    repetitions = 2 if quick else 8
    whole, whole_peak = _timed(lambda: step(everything), repetitions)
    plain, plain_peak = _timed(lambda: step(everything[:KEEP]), repetitions)
    chosen, chosen_peak = _timed(selected_step, repetitions)
    scoring, choosing = (median(parts[name][1:]) for name in ("scoring", "choosing"))
    report.row(
        kind,
        step_on_all=whole,
        step_on_64=plain,
        step_with_selection=chosen,
        of_which_scoring=scoring,
        of_which_choosing=choosing,
        peak_gb_on_all=whole_peak / 1e9,
        peak_gb_on_64=plain_peak / 1e9,
        peak_gb_with_selection=chosen_peak / 1e9,
    )
    ratio, share, memory = chosen / whole, choosing / chosen, chosen_peak / plain_peak
    report.figure(f"{kind}: relative to the step on all", ratio, f"≤ {reach}", ratio <= reach)
    report.figure(
        f"{kind}: choosing, as a share of the step",
        share,
        f"≤ {REACH_CHOOSING}",
        share <= REACH_CHOOSING,
    )
    report.figure(
        f"{kind}: peak memory relative to a plain step on 64",
        memory,
        f"≤ {REACH_MEMORY}",
        memory <= REACH_MEMORY,
    )


def make_model(kind: str, quick: bool) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=256 if quick else 2048,
        intermediate_size=512 if quick else 8192,
        num_hidden_layers=2 if quick else 16,
        num_attention_heads=4 if quick else 32,
        num_key_value_heads=2 if quick else 8,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.train()
    if kind == "checkpointing":
        from uniproto.lm.finetune.run import CHECKPOINTING

        getattr(model, f"{CHECKPOINTING}_enable")({"use_reentrant": False})
    if kind == "lora":
        from peft import LoraConfig, get_peft_model

        names = ["q_proj", "k_proj", "v_proj", "o_proj"]
        model = get_peft_model(model, LoraConfig(r=128, lora_alpha=512, target_modules=names))
    return model


def make_batch(vocabulary: int) -> dict[str, Any]:
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    tokens = torch.randint(
        vocabulary, (POOL, LENGTH), generator=generator, device="cuda", dtype=torch.int64
    )
    labels = tokens.clone()
    labels[:, : int(LENGTH * (1 - ANSWER_SHARE))] = -100
    return {"input_ids": tokens, "labels": labels, "attention_mask": torch.ones_like(tokens)}


def _timed(step: Callable[[], None], repetitions: int) -> tuple[float, int]:
    """Median seconds of a step, and the most GPU memory it held."""
    import torch

    step()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(repetitions):
        begin = _now()
        step()
        seconds.append(_now() - begin)
    return median(seconds), torch.cuda.max_memory_allocated()


def _now() -> float:
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()
