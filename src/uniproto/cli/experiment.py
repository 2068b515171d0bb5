"""`uniproto experiment`: the figures and tables of the paper, made anew."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from uniproto.experiment import add_options, find_scripts, load_script, run_experiment


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "experiment",
        help="make a figure or table of the paper anew, on data you have",
        description="Run one of the experiments that put the paper's claims to the test. Each is "
        "one short script, which prints a table and what the numbers say about the claim.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto experiment                      list the experiments
              uniproto experiment synthetic            needs no data
              uniproto experiment weights --data /path/to/data
              UNIPROTO_DATA=/path/to/data uniproto experiment gains --out gains
              uniproto experiment gains --quick        see it work, in seconds, without data

            Seeds are fixed: the same command gives the same numbers. A run that was stopped or
            killed goes on where it was when the same command is given again; --fresh starts
            over. Nothing is downloaded: 'load_dataset' says which files the data folder needs.

            what is written to OUT:
              NAME.csv, .parquet       every measurement, one per line
              NAME.json, .txt          settings and versions; the printed table and verdict
              NAME*.png, .svg, .html   the figures
              NAME.jsonl               the measurements as they were made, for going on
            """),
    )
    parser.add_argument(
        "name",
        nargs="?",
        default="list",
        metavar="NAME",
        help="which experiment; 'list', or nothing, lists them",
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.name != "list":
        run_experiment(options.name, options)
        return
    scripts = find_scripts()
    width = max(map(len, scripts), default=0)
    for name, path in scripts.items():
        print(f"{name:{width}}  {load_script(path).TITLE}")
    print("\nRun one with: uniproto experiment NAME --data DIR (or --quick, without data)")
