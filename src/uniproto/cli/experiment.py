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

            Seeds are fixed: the same command gives the same numbers. After a stop or a kill it
            resumes where it was; --fresh starts over. Nothing is downloaded: 'load_dataset' says
            which files the data folder needs.

            what is written to OUT:
              NAME.csv, .parquet       every measurement, one per line
              NAME.json, .txt          settings and versions; the printed table and verdict
              NAME*.png, .svg, .html   the figures
              NAME.jsonl               the measurements as they were made, to resume from
            """),
    )
    parser.add_argument(
        "name",
        nargs="?",
        default="list",
        metavar="NAME",
        help="which experiment; 'list', or nothing, lists them",
    )
    parser.late = lambda parser: support_runs().add_options(parser)
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
    support_runs().start(load_script(scripts[options.name]).run, options, options.name)


def find_scripts() -> dict[str, Path]:
    """Every experiment by name: next to the package, or in the source tree it was installed from.

    >>> "weights" in find_scripts()
    True
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "experiments", package.parents[1] / "experiments"):
        found = sorted(folder.glob("[a-z]*.py"))
        if found:
            return {path.stem: path for path in found}
    return {}


def support_runs() -> Any:
    """What the scripts share: their options, and how one is started."""
    for path in find_scripts().values():
        _put_on_path(path.parent)
    return importlib.import_module("support.runs")


def _put_on_path(folder: Path) -> None:
    """A script's folder goes first, as in `python experiments/NAME.py`: it imports `support`."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def load_script(path: Path) -> ModuleType:
    """A script as a module, with its `TITLE` and `run`; nothing runs yet."""
    _put_on_path(path.parent)
    spec = importlib.util.spec_from_file_location(f"uniproto_experiment_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the names in annotations
    spec.loader.exec_module(module)
    return module
