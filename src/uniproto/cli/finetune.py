"""`uniproto finetune`: train a language model on the chosen examples of every pool."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import Any

from uniproto.cli.options import add_settings
from uniproto.errors import invalid, printable
from uniproto.training.finetune.settings import PRESETS, FinetuneSettings, preset


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "finetune",
        usage="%(prog)s {--model MODEL | --preset NAME} --data FILE -o DIR [options]",
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
            """),
    )
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), help="the paper's settings; options win over them"
    )
    parser.add_argument("--fresh", action="store_true", help="start over: forget a run in OUT")
    add_settings(parser, FinetuneSettings, required=("data", "out"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    given = dict(vars(options))
    for name in ("run", "preset", "fresh"):
        del given[name]
    if given.get("source", "") is None:  # --no-source: one selection over the pool
        given.setdefault("mode", "batch")
    values = {**(preset(options.preset) if options.preset else {}), **given}
    if "lora_r" in given and "lora_alpha" not in given:
        values.pop("lora_alpha", None)  # the preset's belongs to the preset's rank
    if "model" not in values:
        raise invalid("--model", "must be given", "none", "Name a folder, or use --preset.")
    settings = FinetuneSettings(**values)
    from uniproto.training.finetune import finetune
    from uniproto.training.trainer import leave_together

    result = finetune(settings, fresh=options.fresh)
    leave_together()
    if result and not settings.quiet:
        print_summary(result, options.out)


def print_summary(result: Mapping[str, Any], out: str) -> None:
    settings, first, last = result["settings"], result["first"], result["last"]
    print("{method}, per {mode}: {keep} of {pool} examples, {steps:,} steps".format_map(settings))
    print(f"  training rows    {sum(result['train_rows'].values()):,}")
    if result["too_long"]:
        length = f"of more than {settings['max_length']} tokens"
        outcome = {"truncate": "cut off", "skip": "skipped"}[settings["too_long"]]
        print(f"  too long         {result['too_long']:,} {length}, {outcome}")
    if result["left_out"]:
        print(f"  never chosen     {result['left_out']:,} with NaN or infinity")
    if last is not None:
        print("  log-perplexity of held-out answers, before → after")
        before = {"(all sources)": first["val_loss"], **first["val_loss_by_source"]}
        after = {"(all sources)": last["val_loss"], **last["val_loss_by_source"]}
        width = max(len(printable(name)) for name in after)
        for name, value in after.items():
            print(f"    {printable(name):{width}}  {_number(before[name])} → {_number(value)}")
    if result["selection_share"] is not None:
        print(f"  selection took   {result['selection_share']:.0%} of a step")
    print(f"  written to       {printable(out)}")


def _number(value: float | None) -> str:
    return "NaN" if value is None else f"{value:.4f}"
