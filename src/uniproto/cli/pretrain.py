"""`uniproto pretrain`: train a language model from scratch on chosen sequences."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

METHODS = ("uniproto", "colm", "greats", "gradnorm", "maxloss", "random", "full")
SIZES = ("tiny", "60m", "500m")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "pretrain",
        help="pretrain a language model on chosen sequences",
        description="Pretrain a language model of the LLaMA-3 architecture with JAX. Every step "
        "looks at a pool of sequences, chooses some of them, and trains on those.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto pretrain --size tiny --data book.txt --steps 200 --pool 16 --keep 8 \\
                  --length 128 -o trial
              uniproto pretrain --size 60m --data corpus.jsonl.zst --method uniproto \\
                  --pool 128 --keep 64 --length 512 --steps 20000 -o run
              uniproto pretrain --data 'texts/*.parquet' --tokens tokens --prepare-only -o run
              uniproto pretrain --size 60m --tokens tokens --method full -o full

            DATA is a file, a folder or a pattern in quotes: .txt, .jsonl (both also .zst) and
            .parquet, with the texts in the column --column. It is cut into tokens once, into
            OUT/tokens, or into --tokens for all runs that are to see the same ones. Without
            --tokenizer, a byte-level BPE is learned from the training documents.

            The same command goes on from the last checkpoint after a kill, and ends with the same
            model and metrics; --fresh starts over. With --schedule constant, a finished run given
            more --steps goes on. On Ctrl-C a checkpoint is written.

            what is written to OUT:
              metrics.jsonl            one row per logged step: losses, seconds, tokens
              curves.csv, .png, …      validation log-perplexity against steps and against time
              result.json              configuration, versions, first and last validation
              tokens/, checkpoints/    the corpus as tokens; the last two checkpoints
              nan_batch.npz            where a loss was not finite: the pool of that step
            """),
    )
    given: dict[str, Any] = {"default": argparse.SUPPRESS}  # the settings have the defaults
    parser.add_argument("--size", choices=SIZES, help="of the model (60m)", **given)
    parser.add_argument("--data", metavar="CORPUS", help="file, folder or pattern", **given)
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="folder for the results")
    chosen = parser.add_argument_group("what is chosen")
    chosen.add_argument(
        "--method",
        choices=METHODS,
        help="how sequences are chosen; docs/pretraining.md explains each (uniproto)",
        **given,
    )
    chosen.add_argument(
        "--pool", type=int, metavar="N", help="sequences looked at per step (128)", **given
    )
    chosen.add_argument(
        "--keep", type=int, metavar="N", help="sequences trained on per step (64)", **given
    )
    chosen.add_argument(
        "--plan", help="uniproto: extend, or entropic as in the paper (extend)", **given
    )
    chosen.add_argument(
        "--reg", type=float, help="entropic plan: strength of the entropy, λ (0.01)", **given
    )
    chosen.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="entropic plan: steps of its solver (20)",
        **given,
    )
    chosen.add_argument(
        "--features",
        help="gradients of the output projection: sketch or exact (sketch)",
        **given,
    )
    chosen.add_argument(
        "--anchors", type=int, metavar="N", help="greats: sequences it measures by (8)", **given
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--steps", type=int, metavar="N", help="steps of the optimizer (20000)", **given
    )
    training.add_argument(
        "--length", type=int, metavar="N", help="tokens per sequence (512)", **given
    )
    training.add_argument(
        "--learning-rate", type=float, metavar="RATE", help="of Adam, the highest (1e-4)", **given
    )
    training.add_argument(
        "--schedule", help="how the rate goes: constant or cosine (constant)", **given
    )
    training.add_argument(
        "--warmup", type=int, metavar="N", help="steps in which the rate rises (0)", **given
    )
    training.add_argument("--weight-decay", type=float, help="as in AdamW (0)", **given)
    training.add_argument("--clip", type=float, help="largest gradient norm (any)", **given)
    training.add_argument(
        "--float32",
        action="store_true",
        help="float32 arithmetic (default on a CPU; elsewhere bfloat16, with float32 weights)",
        **given,
    )
    training.add_argument(
        "--recompute",
        action="store_true",
        help="activations anew: less memory, a third more work",
        **given,
    )
    training.add_argument(
        "--devices", type=int, metavar="N", help="the pool is divided among so many (1)", **given
    )
    training.add_argument("--seed", type=int, help="of split, weights and order (0)", **given)
    data = parser.add_argument_group("data")
    data.add_argument(
        "--tokens",
        metavar="DIR",
        help="folder of prepared tokens; made from DATA where it is not there (OUT/tokens)",
        **given,
    )
    data.add_argument(
        "--column", metavar="COLUMN", help="of the texts in JSONL and Parquet (text)", **given
    )
    data.add_argument(
        "--tokenizer", metavar="PATH", help="a tokenizer.json, or a folder with one", **given
    )
    data.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help="of a tokenizer learned here (32000; less where the corpus is small)",
        **given,
    )
    data.add_argument(
        "--validation",
        type=float,
        metavar="SHARE",
        help="share of the documents held out (0.05)",
        **given,
    )
    data.add_argument("--prepare-only", action="store_true", help="make the tokens and stop")
    record = parser.add_argument_group("what is recorded")
    record.add_argument(
        "--eval-steps",
        type=int,
        metavar="N",
        help="a validation every so many steps (100)",
        **given,
    )
    record.add_argument(
        "--eval-sequences",
        type=int,
        metavar="N",
        help="validation sequences each time (512)",
        **given,
    )
    record.add_argument(
        "--save-steps",
        type=int,
        metavar="N",
        help="a checkpoint every so many steps (500)",
        **given,
    )
    record.add_argument(
        "--logging-steps",
        type=int,
        metavar="N",
        help="a row of metrics every so many steps (10)",
        **given,
    )
    record.add_argument("--fresh", action="store_true", help="forget an earlier run in OUT")
    record.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int | None:
    from uniproto.pretraining.pretrain import PretrainSettings, prepare, pretrain

    given = dict(vars(options))
    fresh, prepare_only = given.pop("fresh"), given.pop("prepare_only")
    del given["run"]
    settings = PretrainSettings(**given)
    if prepare_only:
        tokens = prepare(settings, fresh)
        if not options.quiet:
            _print_tokens(tokens)
        return None
    try:
        result = pretrain(settings, fresh=fresh)
    except KeyboardInterrupt:
        print("uniproto: interrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    if not options.quiet:
        _print_summary(result, options.out)
    return None


def _print_tokens(tokens: Any) -> None:
    there = tokens.header
    print(f"tokens in {tokens.folder}, a vocabulary of {there['vocab']:,}")
    for part in ("train", "validation"):
        name = f"{part}ing" if part == "train" else part
        print(
            f"  {name:<12} {there[f'{part}_tokens']:>14,} tokens of "
            f"{there[f'{part}_documents']:,} documents"
        )


def _print_summary(result: Mapping[str, Any], out: str) -> None:
    first, last = result["first"], result["last"]
    asked = result["configuration"]
    print(f"{asked['size']}, {asked['method']}: {result['steps']:,} steps")
    print(f"  validation log-perplexity   {first['val_loss']:.4f} → {last['val_loss']:.4f}")
    print(f"  training time               {result['seconds']:,.1f} s")
    print(f"  written to                  {out}")
