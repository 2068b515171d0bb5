"""`uniproto finetune`: train a language model on the chosen examples of every pool."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

METHODS = (
    "uniproto",
    "colm",
    "greats",
    "gradnorm",
    "maxloss",
    "sbert",
    "kmedoids",
    "random",
    "full",
)
PRESETS = ("mathinstruct-phi", "mathinstruct-zephyr", "superglue")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "finetune",
        help="fine-tune a language model on chosen examples",
        description="Fine-tune a causal language model. Every step looks at a pool of examples, "
        "chooses some of them, and trains on those.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto finetune --preset mathinstruct-phi --data train.jsonl --out phi
              uniproto finetune --model ./my-model --data train.jsonl.zst --method uniproto \\
                  --mode source --pool 128 --keep 64 --steps 2048 --lora-r 128 --out run
              uniproto finetune --model ./my-model --data train.parquet --method random --out base
              torchrun --nproc_per_node 2 -m uniproto finetune --model ./my-model \\
                  --data train.jsonl --out run

            DATA has the columns source, instruction and output; other names: --source, --prompt,
            --answer. The prompt is --template with {instruction} filled in; only answer tokens
            count in the loss. The same command goes on from the last checkpoint after a kill;
            --fresh starts over.

            what is written to OUT:
              metrics.jsonl            one row per logged step: losses, times, chosen per source
              curves.csv, .png, …      log-perplexity of held-out answers, overall and per source
              result.json              settings, versions, counts, first and last validation
              model/, checkpoint-*/    the trained model (with LoRA: the adapter); to go on from

            The presets are the paper's settings: mathinstruct-phi, mathinstruct-zephyr, superglue.
            Options given beside a preset win over it.
            """),
    )
    none: dict[str, Any] = {"default": None}
    parser.add_argument(
        "--preset", choices=PRESETS, help="the paper's settings; options win over them"
    )
    parser.add_argument(
        "--model", metavar="PATH_OR_HUB_ID", help="a folder, a .gguf file or a name on the hub"
    )
    parser.add_argument("--data", metavar="FILE", required=True, help=".jsonl(.zst) or .parquet")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="folder for the results")
    chosen = parser.add_argument_group("what is chosen")
    chosen.add_argument(
        "--method",
        choices=METHODS,
        help="how examples are chosen; docs/training.md explains each (uniproto)",
        **none,
    )
    chosen.add_argument(
        "--mode",
        choices=("batch", "source"),
        help="choose from the whole pool, or inside each source with a quota for each (source)",
        **none,
    )
    chosen.add_argument(
        "--pool", type=int, metavar="N", help="examples looked at, per device (128)"
    )
    chosen.add_argument(
        "--keep", type=int, metavar="N", help="examples trained on, per device (64)"
    )
    chosen.add_argument(
        "--plan",
        choices=("extend", "resolve", "entropic"),
        help="uniproto: how the plan is kept (extend)",
    )
    chosen.add_argument(
        "--reg", type=float, help="entropic plan: λ, the strength of the entropy (0.01)"
    )
    chosen.add_argument(
        "--iterations", type=int, metavar="N", help="entropic plan: steps of its solver (1000)"
    )
    chosen.add_argument("--metric", help="how examples are compared: dot, cosine, l1 (by method)")
    chosen.add_argument("--features", help="gradient, zeroth-order or embedding (by method)")
    chosen.add_argument(
        "--adam-aligned",
        action=argparse.BooleanOptionalAction,
        help="gradients on the scale of Adam's steps (yes, but not for greats)",
        **none,
    )
    chosen.add_argument("--layer", help="the layer to differentiate (last value projection)")
    chosen.add_argument(
        "--width", type=int, metavar="N", help="at most so many feature dimensions (all)"
    )
    chosen.add_argument(
        "--anchors", type=int, metavar="N", help="greats: examples it measures by (8)"
    )
    chosen.add_argument(
        "--embedding-model", metavar="MODEL", help="sbert: what embeds (all-MiniLM-L6-v2)"
    )
    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=int, metavar="N", help="optimizer steps (2048)")
    training.add_argument(
        "--learning-rate", type=float, metavar="RATE", help="the highest of the schedule (2e-5)"
    )
    training.add_argument(
        "--scheduler", metavar="NAME", help="how the rate falls: a name of transformers (cosine)"
    )
    training.add_argument(
        "--warmup", type=float, metavar="SHARE", help="steps in which the rate rises (0.03)"
    )
    training.add_argument(
        "--lora-r", type=int, metavar="N", help="rank; 0 trains all weights (128)"
    )
    training.add_argument("--lora-alpha", type=int, metavar="N", help="scale of adapters (512)")
    training.add_argument(
        "--lora-dropout", type=float, metavar="SHARE", help="inputs of adapters dropped (0.05)"
    )
    training.add_argument(
        "--lora-targets",
        metavar="A,B",
        help="layers that get adapters, such as q_proj,v_proj (by architecture)",
    )
    training.add_argument("--accumulate", type=int, metavar="N", help="pools per step (1)")
    training.add_argument(
        "--micro-batch",
        type=int,
        metavar="N",
        help="chosen examples per forward and backward pass (all)",
    )
    training.add_argument(
        "--score-batch-size",
        type=int,
        metavar="N",
        help="examples per scoring pass (the pool; greats: 8)",
    )
    training.add_argument(
        "--gradient-checkpointing",
        action="store_true",
        help="less memory, more time",
        **none,
    )
    training.add_argument(
        "--bf16", action="store_true", help="bfloat16 arithmetic (float32)", **none
    )
    training.add_argument("--seed", type=int, help="of split, order and random draws (0)")
    training.add_argument(
        "--device", choices=("auto", "cpu"), help="auto takes a GPU where there is one (auto)"
    )
    data = parser.add_argument_group("data")
    data.add_argument("--prompt", metavar="COLUMN", help="what is asked (instruction)")
    data.add_argument("--answer", metavar="COLUMN", help="what is to be answered (output)")
    sources = data.add_mutually_exclusive_group()
    sources.add_argument("--source", metavar="COLUMN", help="where a row comes from (source)")
    sources.add_argument("--no-source", action="store_true", help="the data have no sources")
    data.add_argument(
        "--template",
        metavar="TEXT",
        help="the prompt, with {instruction} in it (docs/training.md shows it)",
    )
    data.add_argument("--max-length", type=int, metavar="N", help="tokens per example (512)")
    data.add_argument(
        "--too-long",
        choices=("truncate", "skip", "refuse"),
        help="what to do with longer examples; they are counted (truncate)",
    )
    data.add_argument(
        "--validation", type=float, metavar="SHARE", help="held out of every source (0.02)"
    )
    data.add_argument(
        "--validation-least", type=int, metavar="N", help="at least so many of each (4)"
    )
    record = parser.add_argument_group("what is recorded")
    record.add_argument(
        "--eval-steps", type=int, metavar="N", help="a validation every so many steps (64)"
    )
    record.add_argument(
        "--save-steps", type=int, metavar="N", help="a checkpoint every so many steps (64)"
    )
    record.add_argument(
        "--logging-steps", type=int, metavar="N", help="a row of metrics every so many steps (1)"
    )
    record.add_argument(
        "--report-to", metavar="NAME", help="also log there: tensorboard, wandb, … (none)"
    )
    record.add_argument("--fresh", action="store_true", help="forget an earlier run in OUT")
    record.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int | None:
    from uniproto.errors import invalid

    given = {name: value for name, value in vars(options).items() if value is not None}
    for name in ("run", "preset", "fresh", "no_source"):
        given.pop(name, None)
    if options.no_source:
        given["source"] = None
        given.setdefault("mode", "batch")
    settings: dict[str, Any] = {}
    if options.preset:
        from uniproto.training.presets import preset

        settings = dict(preset(options.preset))
    settings |= given
    if "model" not in settings:
        raise invalid("--model", "must be given", "none", "Name a folder, or use --preset.")
    from uniproto.training.finetune import finetune
    from uniproto.training.finetune_settings import FinetuneSettings
    from uniproto.training.processes import leave_together

    try:
        result = finetune(FinetuneSettings(**settings), fresh=options.fresh)
        leave_together()
    except KeyboardInterrupt:
        print(
            "uniproto: interrupted; the same command goes on from the last checkpoint.",
            file=sys.stderr,
        )
        return 130
    if result and not options.quiet:
        print_summary(result, options.out)
    return None


def print_summary(result: Mapping[str, Any], out: str) -> None:
    asked = result["settings"]
    last, first = result["last"], result["first"]
    print(
        f"{asked['method']}, per {asked['mode']}: {asked['keep']} of {asked['pool']} examples, "
        f"{asked['steps']:,} steps"
    )
    print(f"  training rows    {sum(result['train_rows'].values()):,}")
    if result["too_long"]:
        what = {"truncate": "cut off", "skip": "left out"}[asked["too_long"]]
        print(
            f"  too long         {result['too_long']:,} of more than {asked['max_length']} tokens, "
            f"{what}"
        )
    if result["left_out"]:
        print(f"  never chosen     {result['left_out']:,} with NaN or infinity")
    if last is not None:
        print("  log-perplexity of held-out answers, before → after")
        before = {"(all sources)": first["val_loss"], **first["val_loss_by_source"]}
        after = {"(all sources)": last["val_loss"], **last["val_loss_by_source"]}
        width = max(map(len, after))
        for name, value in after.items():
            print(f"    {name:{width}}  {_number(before[name])} → {_number(value)}")
    if result["selection_share"] is not None:
        print(f"  selection took   {result['selection_share']:.0%} of a step")
    print(f"  written to       {out}")


def _number(value: float | None) -> str:
    return "NaN" if value is None else f"{value:.4f}"
