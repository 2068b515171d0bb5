"""`python -m benchmarks [names] [--quick] [--out DIR] [--data DIR]`: tables, and JSON files."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.common import MissingDataError, Report, figures_table, rows_table

NAMES = (
    "peers",
    "features",
    "resolve",
    "certificate",
    "middle",
    "cliffs",
    "many",
    "growth",
    "curation",
    "leaks",
    "word_rules",
    "judge",
    "batch",
    "gpu",
    "training_step",
    "pretraining_step",
    "sandbox",
)
ASKED_FOR = ("few", "living", "ray_growth", "ray_soak")  # too long for a run of everything


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"of {', '.join(NAMES + ASKED_FOR)}"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all works")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"), help="where JSON goes")
    parser.add_argument(
        "--part", metavar="TEXT", help="of a benchmark in parts, only lines with this text"
    )
    parser.add_argument("--data", metavar="FOLDER", help="where the published data sets are")
    arguments = parser.parse_args()
    if arguments.data is not None:
        os.environ["UNIPROTO_DATA"] = arguments.data
    names = arguments.names or list(NAMES)
    known = NAMES + ASKED_FOR
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(known)}")
    if arguments.part is not None and names != ["few"]:
        parser.error("--part needs a benchmark in parts, alone: few")
    if len(names) == 1:
        return run(names[0], arguments.quick, arguments.out, arguments.part)
    return run_each_afresh(names, arguments.quick, arguments.out)


def run(name: str, quick: bool, folder: Path, part: str | None = None) -> int:
    """One benchmark, here, or the part of it whose lines have this text."""
    module = importlib.import_module(f"benchmarks.{name}")
    print(f"\n{name}: {module.TITLE}{' (quick)' if quick else ''}", flush=True)
    report = Report(name, module.TITLE, folder, quick)
    try:
        module.run(report, quick, **({} if part is None else {"part": part}))
    except MissingDataError as missing:
        report.row(name, unavailable=str(missing))
        print(f"{name}: {missing}", file=sys.stderr)
        return 1
    report.finish()
    print(f"\n{rows_table(report.content)}\n")
    print(f"{figures_table([report.content])}\n")
    print(f"written: {report.file}", flush=True)
    return 0


def run_each_afresh(names: list[str], quick: bool, folder: Path) -> int:
    """Each benchmark in a Python of its own, so that none warms or burdens the next."""
    failed, contents = [], []
    for name in names:
        file = folder / f"{name}{'-quick' if quick else ''}.json"
        file.unlink(missing_ok=True)  # an old answer must not pass for a new one
        command = [sys.executable, "-m", "benchmarks", name, "--out", str(folder)]
        ended = subprocess.run(command + ["--quick"] * quick)
        if ended.returncode:
            failed.append(name)
        if file.exists():
            contents.append(json.loads(file.read_text()))
    print(f"\nall figures\n\n{figures_table(contents)}")
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
