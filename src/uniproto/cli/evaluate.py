"""`uniproto evaluate`: how good a language model is at mathematics or SuperGLUE."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="judge a language model on mathematics or SuperGLUE",
        description="Ask a language model every question of some benchmarks and judge its answers. "
        "Mathematics: it is asked for a Python program, which runs locked in; where no program "
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

            The same command goes on where it stopped, also after a kill; --fresh starts over.

            what is written to OUT:
              table.txt, .csv     accuracy per data set with standard errors, and the averages
              page.html           every answer, to look through in a browser
              items.jsonl         one line per question: prompt, output, program, result, verdict
              scores.json         all scores, settings and versions
            """),
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a folder of 'uniproto finetune', weights, a .gguf file, or a hub name",
    )
    parser.add_argument(
        "--suite", default="math", help="math, superglue, or names of data sets (math)"
    )
    parser.add_argument("--data", metavar="DIR", required=True, help="folder of the benchmarks")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="folder for the results")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="only the first N of each data set (all)"
    )
    parser.add_argument(
        "--allow-partial", action="store_true", help="accept data sets that lack questions"
    )
    asking = parser.add_argument_group("how it is asked")
    asking.add_argument(
        "--batch-size", type=int, metavar="N", default=16, help="prompts at a time (16)"
    )
    asking.add_argument(
        "--max-new-tokens", type=int, metavar="N", default=2048, help="longest answer (2048)"
    )
    asking.add_argument(
        "--template",
        metavar="TEXT",
        help="the prompt, with {instruction} in it (the one the model was tuned with)",
    )
    asking.add_argument(
        "--base", metavar="PATH_OR_HUB_ID", help="the model an adapter belongs to (it says so)"
    )
    asking.add_argument("--bf16", action="store_true", help="bfloat16 arithmetic (float32)")
    asking.add_argument(
        "--device",
        choices=("auto", "cpu"),
        default="auto",
        help="auto takes a GPU where there is one",
    )
    programs = parser.add_argument_group("programs that the model writes")
    programs.add_argument(
        "--program-seconds",
        type=float,
        metavar="SECONDS",
        default=5.0,
        help="time for one program (5)",
    )
    programs.add_argument(
        "--trust-generated-code",
        action="store_true",
        help="run programs even where the system cannot lock them in: they can then do whatever "
        "you can do",
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier answers in OUT")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int | None:
    from uniproto.judging.evaluating import evaluate

    given = {k: v for k, v in vars(options).items() if k not in ("run", "model", "quiet")}
    if options.quiet:
        given |= {"progress": False, "tell": lambda line: None}
    try:
        found = evaluate(options.model, **given)
    except KeyboardInterrupt:
        print("uniproto: interrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    if not options.quiet:
        print(found.table())
        print(f"\nwritten to {options.out}; look through the answers in {options.out}/page.html")
    return None
