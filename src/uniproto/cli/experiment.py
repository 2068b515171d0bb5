"""`uniproto experiment`: reproduce the figures and tables of the paper."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

from uniproto.errors import unknown_name

DATA_VARIABLE = "UNIPROTO_DATA"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "experiment",
        help="reproduce a figure or table of the paper",
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
    scripts = find_scripts()
    if options.name == "list":
        width = max(map(len, scripts), default=0)
        for name, path in scripts.items():
            print(f"{name:{width}}  {load_script(path).TITLE}")
        print("\nRun one with: uniproto experiment NAME --data DIR (or --quick, without data)")
        return
    if options.name not in scripts:
        raise unknown_name("NAME", options.name, [*scripts, "list"])
    script = load_script(scripts[options.name])
    importlib.import_module("support.runs").start(script.run, options, options.name)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every experiment."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        help=f"folder of published data sets (default: the environment's {DATA_VARIABLE})",
    )
    parser.add_argument(
        "-o", "--out", metavar="DIR", help="folder for the results (default: out/experiments/NAME)"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick",
        action="store_true",
        help="a small version that needs no data: seconds, and no evidence for anything "
        "(default folder: out/experiments/NAME-quick)",
    )
    size.add_argument(
        "--full",
        action="store_true",
        help="of an experiment that is cut down to two cores, the whole: hours, on a larger "
        "machine (default folder: out/experiments/NAME-full)",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="forget the rows of earlier runs in the folder"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    training = parser.add_argument_group("of experiments that train models")
    training.add_argument("--seeds", metavar="N,N", help="seeds in place of the usual ones")
    training.add_argument("--steps", type=int, metavar="N", help="steps of every run")
    training.add_argument("--model", metavar="PATH_OR_SIZE", help="another model to train")
    training.add_argument("--learning-rate", type=float, metavar="RATE", help="another rate")
    training.add_argument("--plan", metavar="NAME", help="uniproto's plan: extend, entropic")
    parser.add_argument(
        "--part",
        metavar="TEXT",
        help="of an experiment in parts, only those with this text in their names; several may "
        "run at once, and the same command without --part then joins their results",
    )
    parser.add_argument(
        "--side-by-side",
        type=int,
        metavar="N",
        help="of an experiment in parts, so many at a time, each in a process of its own: for a "
        "GPU that one run does not fill",
    )
    parser.add_argument(
        "--until",
        type=float,
        metavar="SECONDS",
        help="with --side-by-side, stop after so long and join what is done; the same command "
        "goes on from there",
    )


def find_scripts() -> dict[str, Path]:
    """Every experiment by name: beside the package, or in the source tree it was installed from.

    >>> "weights" in find_scripts()
    True
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "experiments", package.parents[1] / "experiments"):
        found = sorted(folder.glob("[a-z]*.py"))
        if found:
            return {path.stem: path for path in found}
    return {}


def load_script(path: Path) -> ModuleType:
    """A script as a module, with its `TITLE` and `run`; nothing runs yet.

    Its folder goes first on the path, as in `python experiments/NAME.py`: it imports `support`.
    """
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"uniproto_experiment_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the names in annotations
    spec.loader.exec_module(module)
    return module
