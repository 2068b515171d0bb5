"""What the scripts in `experiments/` share: a setup, rows that survive a kill, result files.

A script has a `TITLE` and a function `run(setup)`. It cuts its work into units (one data draw and
one method, say), skips the units that are done, and publishes the tidy rows with its charts:

    def run(setup):
        runs = Runs(setup.out, "weights", {"k": 50, "quick": setup.quick})
        for seed in range(5):
            if not runs.done(seed=seed):
                runs.add({"seed": seed}, [{"rank": 1, "weight": 0.3}, {"rank": 2, "weight": 0.1}])
        runs.publish({"weights": chart}, report="k-medoids' weights are skewed: …")
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.errors import UniprotoError, invalid, require_int, unknown_name
from uniproto.runs.folder import require_same
from uniproto.runs.journal import Journal
from uniproto.runs.publish import note_saved

DATA_VARIABLE = "UNIPROTO_DATA"
_FORMAT = 1
_HEADER = "uniproto experiment"  # the first line of every file of rows says so


SEPARATOR = "_"  # between the parts of a run's name; no method has it in its own


@dataclass(frozen=True)
class Training:
    """Options of experiments that train models; None: the experiment's own."""

    seeds: tuple[int, ...] | None = None
    steps: int | None = None
    model: str | None = None
    learning_rate: float | None = None
    plan: str | None = None


def run_name(*parts: Any) -> str:
    """The name of a run, which `name_parts` takes apart again.

    >>> name_parts(run_name("colm-raw", "source", 0))
    ['colm-raw', 'source', '0']
    """
    texts = [str(part) for part in parts]
    for text in texts:
        if SEPARATOR in text:
            raise invalid("parts", f"must not contain {SEPARATOR!r}", text, "Name it otherwise.")
    return SEPARATOR.join(texts)


def name_parts(name: str) -> list[str]:
    return name.split(SEPARATOR)


@dataclass(frozen=True)
class Setup:
    """The options of an experiment.

    `data` is the folder of published data sets, None where none was named. `out` is where the
    results go. `quick` asks for a few seconds' work that needs no data folder, `full` for the sizes
    that only a larger machine gets through. `progress` is as for `uniproto.select`: None means bars
    only where a person is watching. `part` asks for the parts whose names hold that text, so that
    several can run side by side; a part's whole name asks for that part alone. `finished_only`
    joins the parts that are done and runs none. `training` is about experiments that train models.
    """

    data: Path | None
    out: Path
    quick: bool = False
    full: bool = False
    progress: bool | None = None
    part: str | None = None
    training: Training = Training()
    finished_only: bool = False

    def parts(self, names: Sequence[str]) -> list[str]:
        """The parts asked for, of all there are.

        >>> Setup(None, Path("out"), part="mnist").parts(["mnist-3", "mnist-5", "cifar"])
        ['mnist-3', 'mnist-5']
        """
        if self.part is not None and self.part in names:
            return [self.part]
        chosen = [name for name in names if self.part is None or self.part in name]
        if not chosen:
            raise unknown_name("part", str(self.part), names)
        return chosen

    def waits_for_others(self, done: Iterable[str]) -> bool:
        """Whether only some parts were run; then says how to join all of them."""
        if self.part is not None:
            print(f"{', '.join(done)}: done. The same command without --part joins all parts.")
        return self.part is not None


class Runs:
    """The rows of an experiment, in FOLDER/NAME.jsonl: one line per finished unit of work.

    A unit's rows go to the disk together, so a run that is killed redoes at most the unit it was
    at. Made again with the same settings, `Runs` goes on where it stopped; with others it refuses,
    because rows made in two ways must not stand in one table.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Runs(folder, "trial", {"k": 3}).add({"seed": 0}, [{"cost": 0.5}, {"cost": 0.25}])
    >>> again = Runs(folder, "trial", {"k": 3})
    >>> again.done(seed=0), again.done(seed=1), again.rows
    (True, False, [{'seed': 0, 'cost': 0.5}, {'seed': 0, 'cost': 0.25}])
    """

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        self.folder, self.name = Path(folder), name
        self.settings: dict[str, Any] = json.loads(_as_json(settings))
        self.path = self.folder / f"{name}.jsonl"
        self._journal = Journal(self.path, "the rows")
        self._units = self._read()

    def done(self, **key: Any) -> bool:
        """Whether this unit's rows are there."""
        return _as_json(key, sort_keys=True) in self._units

    def add(self, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the rows of one finished unit, all or none; every row gets the key's columns."""
        unit = [{**key, **row} for row in rows]
        for row in unit:
            for column, value in row.items():
                if not isinstance(_plain(value), str | int | float | bool | None):
                    raise invalid(
                        "rows",
                        "must be tidy, with one number, text or None per column",
                        f"{type(value).__name__} in {column!r}",
                        "Give each value a row or a column of its own.",
                    )
        entry = json.loads(_as_json({"key": dict(key), "rows": unit}))
        self._journal.append(entry)
        note_saved("the parts that are done")
        self._units[_as_json(key, sort_keys=True)] = entry["rows"]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order their units were finished."""
        return [dict(row) for unit in self._units.values() for row in unit]

    def publish(self, charts: Mapping[str, Any], report: str = "") -> Path:
        """Write the results next to the rows, each file complete or not at all.

        NAME.csv and NAME.parquet hold the rows, NAME.json the settings and versions, NAME.txt the
        report (if any), and CHART.png, .svg and .html each chart by its own name.
        """
        import pyarrow.csv  # all of this takes a second to load, and a list needs none of it
        import pyarrow.parquet as pq

        from support.charts import save_chart_files
        from uniproto.runs.publish import publishing, write_record
        from uniproto.runs.records import as_table, versions, without_infinity

        table = as_table(self.rows)
        record = {"settings": self.settings, "rows": table.num_rows, "versions": versions()}
        with publishing(self.folder, f"{self.name}.json") as stage:
            pyarrow.csv.write_csv(table, stage / f"{self.name}.csv")
            pq.write_table(table, stage / f"{self.name}.parquet")
            if report:
                (stage / f"{self.name}.txt").write_text(report.rstrip() + "\n", encoding="utf-8")
            for chart_name, chart in charts.items():
                save_chart_files(chart, stage, chart_name)
            write_record(stage, f"{self.name}.json", without_infinity(record))
        return self.folder

    def _read(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of an earlier run by unit; a new file gets its header."""
        if not self._journal.entries:
            header = {"what": _HEADER, "format": _FORMAT, "settings": self.settings}
            if not _as_json(header).encode().startswith(self._journal.incomplete):
                raise self._journal.damaged("its first line is not ours")
            self._journal.append(header)
            return {}
        try:
            header, *units = self._journal.entries
            if header["what"] != _HEADER or header["format"] != _FORMAT:
                raise ValueError("its first line is not ours")
            rows = {_as_json(unit["key"], sort_keys=True): unit["rows"] for unit in units}
            settings = header["settings"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._journal.damaged(error) from error
        require_same(settings, self.settings, self.folder, "rows of the same settings")
        if rows:
            note_saved("the parts that are done")
        return rows


def rounded(row: Mapping[str, Any], digits: int = 5) -> dict[str, Any]:
    """A row as it is published, so that reports are computed from what is saved.

    >>> rounded({"method": "random", "cost": 0.123456789})
    {'method': 'random', 'cost': 0.12346}
    """
    return {
        column: float(f"{value:.{digits}g}") if isinstance(value, float) else value
        for column, value in row.items()
    }


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
        help="full size of an experiment that is cut down for two cores: hours, on a larger "
        "machine (default folder: out/experiments/NAME-full)",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="discard the rows of earlier runs in the folder"
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
        help="of an experiment in parts, run N at a time, each in a process of its own: for a GPU "
        "that one run does not fill",
    )
    parser.add_argument(
        "--until",
        type=float,
        metavar="SECONDS",
        help="with --side-by-side, time limit: then what is done is joined, and the same command "
        "continues",
    )


def command_line(run: Callable[[Setup], None], description: str) -> None:
    """Run a script on its own: `python experiments/weights.py --data DIR --out DIR [--quick]`."""
    script = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(description=description)
    add_options(parser)
    options = parser.parse_args()
    try:
        start(run, options, script)
    except UniprotoError as error:
        sys.exit(f"{script}: error: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{script}: interrupted; the same command goes on from here.")


def as_setup(options: argparse.Namespace, name: str) -> Setup:
    """The setup a command line asks for; with --fresh, rows of earlier runs go now."""
    data = options.data or os.environ.get(DATA_VARIABLE)
    size = "-quick" if options.quick else "-full" if options.full else ""
    out = options.out or Path("out", "experiments", f"{name}{size}")
    setup = Setup(
        data=Path(data) if data else None,
        out=Path(out),
        quick=options.quick,
        full=options.full,
        progress=False if options.quiet else None,
        part=options.part,
        training=Training(
            seeds=None if options.seeds is None else _seeds(options.seeds),
            steps=options.steps,
            model=options.model,
            learning_rate=options.learning_rate,
            plan=options.plan,
        ),
    )
    if options.fresh:
        for path in setup.out.rglob("*.jsonl"):
            if _is_ours(path) and (setup.part is None or setup.part in path.stem):
                path.unlink()
    return setup


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise invalid(
            "--seeds", "must be whole numbers with commas between them", text, "Pass 0,1,2."
        ) from None


def start(run: Callable[[Setup], None], options: argparse.Namespace, name: str) -> None:
    """Run an experiment with the options of a command line."""
    known = getattr(run, "__globals__", {})
    if options.full and "FULL_PARTS" not in known:
        raise invalid(
            "--full",
            "needs an experiment that was cut down",
            f"{name}, which has its full size",
            "Leave the option out.",
        )
    if options.part is not None and "PARTS" not in known:
        raise invalid(
            "--part",
            "needs an experiment in parts",
            f"{options.part!r} for {name}, which is one piece",
            "Leave the option out.",
        )
    setup = as_setup(options, name)
    if setup.training != Training() and not known.get("TRAINS"):
        raise invalid(
            "--seeds, --steps, --model, --learning-rate and --plan",
            "need an experiment that trains models",
            name,
            "Leave them out.",
        )
    if options.side_by_side is None:
        if options.until is not None:
            raise invalid("--until", "needs --side-by-side", options.until, "Give both.")
        run(setup)
        return
    if not {"PARTS", "parts"} & set(known):
        raise invalid(
            "--side-by-side",
            "needs an experiment in parts",
            f"{name}, which is one piece",
            "Leave the option out.",
        )
    from support.side_by_side import run_side_by_side

    count = require_int("--side-by-side", options.side_by_side)
    names = setup.parts(known["parts"](setup) if "parts" in known else known["PARTS"])
    run_side_by_side(run, setup, names, count, options.until)


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline().startswith(f'{{"what": "{_HEADER}"'.encode())


def _as_json(value: Any, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain, **options)


def _plain(value: Any) -> Any:
    """A JSON value for a NumPy scalar or a path; anything else as it is."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if getattr(value, "ndim", None) == 0 else value
