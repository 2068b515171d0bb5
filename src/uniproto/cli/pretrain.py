"""`uniproto pretrain`: train a language model from scratch on chosen sequences."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uniproto.cli.parser import add_settings
from uniproto.errors import printable, require_name


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "pretrain",
        help="pretrain a language model on chosen sequences",
        usage="uniproto pretrain --data CORPUS -o DIR [options]",
        description="Pretrain a language model of the LLaMA-3 architecture with JAX. Every step "
        "scores a pool of sequences, chooses some of them, and trains on those. The methods are "
        "explained in docs/pretraining.md.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto pretrain --size tiny --data book.txt --steps 200 --pool 16 --keep 8 \\
                  --length 128 -o trial
              uniproto pretrain --size 60m --data corpus.jsonl.zst --method uniproto \\
                  --pool 128 --keep 64 --length 512 --steps 20000 -o run
              uniproto pretrain --data 'texts/*.parquet' --tokens tokens --prepare-only -o run
              uniproto pretrain --size 60m --tokens tokens --method full -o full
              uniproto pretrain -o run --export hf model

            --export writes the last checkpoint of OUT as a model of transformers, for
            'uniproto evaluate' and 'uniproto finetune', and compares the two.

            CORPUS is a file, a folder or a pattern in quotes: .txt, .jsonl (both also .zst) and
            .parquet, with the texts in the column --column. It is cut into tokens once, into
            OUT/tokens, or into --tokens for all runs that share them. Without
            --tokenizer, a byte-level BPE is learned from the training documents.

            After a kill the same command resumes from the last checkpoint, and ends with the same
            model and metrics; --fresh starts over. With --schedule constant, a finished run given
            more --steps continues. On Ctrl-C a checkpoint is written.

            what is written to OUT, the folder of -o:
              metrics.jsonl            one row per logged step: losses, seconds, tokens
              curves.csv, .png         validation log-perplexity against steps and against time
              result.json              configuration, versions, first and last validation
              tokens/, checkpoints/    the corpus as tokens; the last two checkpoints
              nan_batch.npz            where a loss was not finite: the pool of that step
            """),
    )
    parser.late = _add_options
    parser.set_defaults(run=run)


def _add_options(parser: argparse.ArgumentParser) -> None:
    from uniproto.lm.pretraining.pretrain_settings import PretrainSettings

    add_settings(parser, PretrainSettings, required=["out"])
    parser.add_argument("--fresh", action="store_true", help="remove an earlier run in OUT")
    parser.add_argument(
        "--export",
        nargs=2,
        metavar=("hf", "DIR"),
        help="export the last checkpoint as a model of transformers",
    )
    parser.add_argument("--prepare-only", action="store_true", help="prepare the tokens and stop")


def run(options: argparse.Namespace) -> None:
    from uniproto.lm.pretraining.pretrain import prepare, pretrain
    from uniproto.lm.pretraining.pretrain_settings import PretrainSettings

    given = dict(vars(options))
    fresh, prepare_only = given.pop("fresh"), given.pop("prepare_only")
    export = given.pop("export")
    del given["run"]
    if export is not None:
        require_name("export", export[0], ("hf",))
        if "data" not in given:  # of a run that is there
            _export(options, export[1])
            return
    settings = PretrainSettings(**given)
    if prepare_only:
        tokens = prepare(settings, fresh)
        if not settings.quiet:
            _print_tokens(tokens)
        return
    result = pretrain(settings, fresh=fresh)
    if not settings.quiet:
        _print_summary(result, settings.out)
    if export is not None:
        _export(options, export[1])


def _export(options: argparse.Namespace, folder: str) -> None:
    from uniproto.lm.pretraining.export import export_run

    given = vars(options)
    tokens = given.get("tokens")
    found = export_run(Path(options.out), Path(folder), None if tokens is None else Path(tokens))
    if not given.get("quiet"):
        print(f"LlamaForCausalLM after {found['step']:,} steps, in {printable(folder)}")
        print(f"  largest difference of a score from the model's own: {found['difference']:.1g}")


def _print_tokens(tokens: Any) -> None:
    header = tokens.header
    print(f"tokens in {printable(tokens.folder)}, a vocabulary of {header['vocab']:,}")
    for part in ("train", "validation"):
        name = f"{part}ing" if part == "train" else part
        print(
            f"  {name:<12} {header[f'{part}_tokens']:>14,} tokens of "
            f"{header[f'{part}_documents']:,} documents"
        )


def _print_summary(result: Mapping[str, Any], out: str) -> None:
    first, last = result["first"], result["last"]
    settings = result["configuration"]
    print(f"{settings['size']}, {settings['method']}: {result['steps']:,} steps")
    print(f"  validation log-perplexity   {first['val_loss']:.4f} → {last['val_loss']:.4f}")
    print(f"  training time               {result['seconds']:,.1f} s")
    print(f"  written to                  {printable(out)}")
