"""`uniproto evaluate`: how good a language model is at mathematics or SuperGLUE."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from uniproto.cli.parser import add_settings
from uniproto.errors import printable


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="judge a language model on mathematics or SuperGLUE",
        description="Ask a language model every question of some benchmarks and judge its answers. "
        "Mathematics: it is asked for a Python program, which runs in a sandbox; where no program "
        "works, it is asked to reason in words. Classification: the likeliest label word.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto evaluate run --suite math --data data/math --bf16 --batch-size 256 -o judged
              uniproto evaluate ./my-model --suite superglue --data data/glue -o judged
              uniproto evaluate model.gguf --suite gsm8k,svamp --data data --limit 50 -o quick

            MODEL is what `uniproto finetune` wrote (it knows its base model and its prompt), a
            folder of weights or of a PEFT adapter, a .gguf file, or a name on the hub.

            suites:
              math        gsm8k, math, numglue (in-domain), svamp, deepmind, simuleq (out-of-domain)
              superglue   sst2, cb, multirc
              or data sets by name, with commas between; MATH in capitals is that data set alone

            DIR holds math_test.jsonl(.zst) with {dataset, question, answer}, or the benchmarks'
            original files; for superglue SST-2/dev.tsv, CB/val.jsonl and MultiRC/val.jsonl, or an
            archive of them. A data set that lacks questions is an error; --limit and
            --allow-partial accept it, and the results say so.

            The same command continues where it stopped, also after a kill; --fresh starts over.

            what is written to OUT:
              table.txt, .csv     accuracy per data set with standard errors, and the averages
              page.html           every answer, to look through in a browser
              items.jsonl         one line per question: prompt, output, program, result, verdict
              scores.json         all scores, settings and versions
            """),
    )
    parser.late = _add_options
    parser.set_defaults(run=run)


def _add_options(parser: argparse.ArgumentParser) -> None:
    from uniproto.lm.judging import EvaluateSettings

    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a folder of 'uniproto finetune', weights, a .gguf file, or a hub name",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    add_settings(parser, EvaluateSettings, required=("data", "out"))


def run(options: argparse.Namespace) -> None:
    from uniproto.lm.judging.run import evaluate

    given = {k: v for k, v in vars(options).items() if k not in ("run", "model", "quiet")}
    if options.quiet:
        given |= {"progress": False, "log": lambda line: None}
    found = evaluate(options.model, **given)
    if not options.quiet:
        print(found.table())
        out = printable(options.out)
        print(f"\nwritten to {out}; look through the answers in {out}/page.html")
