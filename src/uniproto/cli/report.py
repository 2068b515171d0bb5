"""`uniproto report`: a page about a saved result, for people."""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.question import Question, recorded_question
from uniproto.errors import InputFileError, InvalidInputError, invalid, unknown_name
from uniproto.report import PAGE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.data.tables import InputData
    from uniproto.problem import Problem
    from uniproto.report.examples import Examples, Reader
    from uniproto.selection import Selection

_COMPARISON = "comparison.json"
_FIRST_VALUES = 12


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="make a page to look at from a saved selection",
        description=textwrap.dedent("""\
            Write one HTML file about a saved selection: the verdict, a map, every prototype with
            the examples it stands for, coverage of classes, the worst-covered examples, costs.
            The file needs nothing else: it opens from disk, and nothing is ever fetched."""),
        epilog=textwrap.dedent("""\
            examples:
              uniproto report out --open
              uniproto report out --labels class --text review
              uniproto report out --images photos/ -o page.html

            What 'uniproto select' was told (--labels, --text, --images, --groups, --id) is known
            already. A comparison that 'uniproto compare -o out' left there is shown too, and so
            is the bound of 'uniproto certify out'.
            """),
    )
    parser.add_argument("folder", metavar="OUT", help="a folder that 'uniproto select' has written")
    parser.add_argument(
        "-o", "--out", dest="output", metavar="FILE", help=f"the page to write (OUT/{PAGE})"
    )
    parser.add_argument(
        "--labels",
        metavar="COLUMN",
        help="the classes: a column (of an .npz file: an array of it)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--text", metavar="COLUMN", help="show this column's text")
    shown.add_argument(
        "--images",
        metavar="COLUMN_OR_FOLDER",
        help="show pictures: a column of paths or of pictures, or a folder with the files that the "
        "table or the ids name, or with one file per row (of an .npz file: an array of it)",
    )
    parser.add_argument(
        "--map",
        metavar="COLUMN",
        help="the map's coordinates: a column of pairs, or two columns as X,Y (principal "
        "components, unless the table has one column of pairs)",
    )
    parser.add_argument("--title", help="what the page is about (the name of the input file)")
    parser.add_argument(
        "--random",
        type=_count,
        metavar="N",
        help="compare with N random choices (5, as far as half a minute allows)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--quiet", action="store_true", help="say nothing")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.problem import make_problem
    from uniproto.report import write_report
    from uniproto.storage import load_manifest, load_selection

    folder = Path(options.folder)
    manifest, selection = load_manifest(folder), load_selection(folder)
    problem: Problem | None = None
    if "inputs" in manifest or _asks_for_columns(options):
        question = recorded_question(folder, manifest)
        problem = make_problem(**question.asked)
        _require_same_question(folder, selection, problem)
        source, target = _sides(question, manifest, options)
        title = options.title or question.pool.path.name
    else:  # saved from Python: the page can only tell what the folder holds
        source, target = _nothing_known(selection)
        title = options.title or folder.resolve().name
    path = write_report(
        selection,
        options.output or folder / PAGE,
        source,
        target,
        problem=problem,
        title=title,
        commands=_commands(manifest, options),
        random=options.random,
        comparison=_comparison(folder, selection),
    )
    if not options.quiet:
        print(f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")
    if options.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _sides(
    question: Question, manifest: Mapping[str, Any], options: argparse.Namespace
) -> tuple[Examples, Examples]:
    """What is known of the source's rows, and of the target's."""
    asked = question.asked
    source = _known(question.pool, "source", manifest, options, asked["groups"])
    if question.target is None:
        if len(question.pool.features) == _targets(question):
            return source, source
        from uniproto.report.examples import Examples

        return source, Examples(_targets(question))
    target = _known(question.target, "target", manifest, options, asked["target_groups"])
    return source, target


def _targets(question: Question) -> int:
    from uniproto.geometry.costs import MATRIX_METRICS

    shape = question.pool.features.shape
    return int(shape[1] if question.asked["metric"] in MATRIX_METRICS else shape[0])


def _known(
    data: InputData,
    role: str,
    manifest: Mapping[str, Any],
    options: argparse.Namespace,
    groups: NDArray[Any] | None,
) -> Examples:
    from uniproto.report.examples import Examples, column, fields_of

    recorded = manifest["arguments"]
    count = len(data.features)
    ids = None
    if recorded.get("id") and data.table is not None and recorded["id"] in data.table.column_names:
        ids = _column(data, recorded["id"])
    embedding = (manifest["inputs"].get(role) or {}).get("embedding") or {}
    text = options.text
    if text is None and options.images is None and embedding.get("kind") == "text":
        text = embedding["column"]
    pictures, white = None, None
    if options.images is not None:
        pictures, white = _pictures(data, options.images, count, ids)
    elif text is None and embedding.get("kind") == "images":
        pictures = _embedded_pictures(data, embedding)
    reader = None
    if text is not None:
        names = _require(data, text, "--text", needed=role == "source" or data.table is None)
        reader = column(data.table, text) if names and data.table is not None else None
    hidden = [recorded.get("id"), *(data.feature_columns if _is_list(data) else ())]
    return Examples(
        count,
        text=reader,
        pictures=pictures,
        white=white,
        labels=_labels(data, role, options.labels, recorded.get("labels")),
        groups=groups,
        ids=ids,
        fields=_first_values(data.features)
        if data.table is None
        else fields_of(data.table, [name for name in hidden if name]),
        positions=_positions(data, options.map, count),
    )


def _labels(
    data: InputData, role: str, asked: str | None, recorded: str | None
) -> NDArray[Any] | None:
    """The classes: asked for they must be there; of a record, they may be the target's alone."""
    name = asked or recorded
    if name is None:
        return None
    if data.table is None:
        if asked is None:
            return None
        values = _array(data, asked, "--labels")
        if values.shape != (len(data.features),):
            raise invalid(
                "--labels",
                f"must name an array with one label per row, {len(data.features):,} in all",
                f"{asked!r} of shape {values.shape}",
                "Name another.",
            )
        return values
    if name not in data.table.column_names and (asked is None or role == "target"):
        return None
    return _column(data, name)


def _column(data: InputData, name: str) -> NDArray[Any]:
    """A column of labels, in which a gap is a class of its own: a page shows what there is."""
    import numpy as np

    assert data.table is not None
    try:
        return data.column(name, "--labels")
    except InvalidInputError:
        values = data.table.column(name).to_pylist()
        return np.array(["(none)" if value is None else str(value) for value in values], object)


def _require(data: InputData, name: str, parameter: str, *, needed: bool) -> bool:
    from uniproto.data.tables import require_column

    if data.table is None:
        raise invalid(
            parameter,
            "needs a table (.parquet, .csv or .jsonl) with named columns",
            f"{data.path.name}, which holds a bare array",
            "Leave the option out.",
        )
    if name in data.table.column_names:
        return True
    if needed:
        require_column(data.table, name, parameter, data.path)
    return False


def _pictures(
    data: InputData, images: str, count: int, ids: NDArray[Any] | None
) -> tuple[Reader | None, float | None]:
    from uniproto.report.examples import array_of_pictures, column, folder_of_pictures, paths

    beside = data.path if data.path.is_dir() else data.path.parent
    if data.table is not None and images in data.table.column_names:
        return paths(column(data.table, images), beside), None
    folder = Path(images).expanduser()
    if folder.is_dir():
        if data.table is not None:
            from uniproto.features.files import read_items

            try:
                items = read_items(data.path, None, images)
            except InputFileError:
                return folder_of_pictures(folder, count, ids), None
            if items.folder is not None and not items.is_folder:
                return paths(column(data.table, items.column), items.folder), None
        return folder_of_pictures(folder, count, ids), None
    if data.table is None:
        return array_of_pictures(_array(data, images, "--images"), count, "--images")
    error = unknown_name("--images", images, data.table.column_names)
    raise InputFileError(f"{data.path}: {error} Or name a folder of pictures.")


def _embedded_pictures(data: InputData, embedding: Mapping[str, Any]) -> Reader | None:
    """The pictures that the selection was made from."""
    from uniproto.report.examples import column, paths

    if data.table is None:
        return None
    folder = data.path if data.path.is_dir() else data.path.parent
    if embedding["named"] not in (*data.table.column_names, ".") and not data.path.is_dir():
        folder = Path(embedding["named"])
    return paths(column(data.table, embedding["column"]), folder)


def _array(data: InputData, name: str, parameter: str) -> NDArray[Any]:
    """Another array of the .npz file that holds the features."""
    import numpy as np

    if data.path.suffix.lower() != ".npz":
        raise invalid(
            parameter,
            "needs a table or an .npz file",
            f"{name!r} and {data.path.name}, one bare array",
            "Put the columns in a table, or the arrays in an .npz file.",
        )
    with np.load(data.path, allow_pickle=False) as archive:
        if name not in archive.files:
            raise InputFileError(f"{data.path}: {unknown_name(parameter, name, archive.files)}")
        return np.asarray(archive[name])


def _positions(data: InputData, asked: str | None, count: int) -> NDArray[Any] | None:
    """Coordinates for the map: those asked for, or the only column of pairs there is."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from uniproto.report.examples import pairs

    if asked is None:
        if not isinstance(data.table, pa.Table):
            return None
        found = []
        for field in data.table.schema:
            if _is_numbers(field.type) and field.name not in data.feature_columns:
                values = data.table.column(field.name)
                lengths = pc.unique(pc.list_value_length(values)).to_pylist()
                if lengths == [2] and not pc.list_flatten(values).null_count:
                    found.append(field.name)
        if len(found) != 1:
            return None
        asked = found[0]
    if data.table is None:
        return pairs(_array(data, asked, "--map"), "--map", count)
    if asked not in data.table.column_names and "," in asked:
        names = [name.strip() for name in asked.split(",")]
        for name in names:
            _require(data, name, "--map", needed=True)
        return pairs(
            np.column_stack([data.column(name, "--map") for name in names]), "--map", count
        )
    _require(data, asked, "--map", needed=True)
    return pairs(data.table.column(asked).to_pylist(), "--map", count)


def _is_numbers(kind: Any) -> bool:
    import pyarrow as pa

    is_list = (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    return is_list and (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    )


def _is_list(data: InputData) -> bool:
    """Whether the features are one column of lists, which nobody reads."""
    import pyarrow as pa

    if data.table is None or len(data.feature_columns) != 1:
        return False
    kind = data.table.schema.field(data.feature_columns[0]).type
    return bool(pa.types.is_nested(kind))


def _first_values(features: Any) -> Any:
    def read(rows: NDArray[Any]) -> list[dict[str, Any]]:
        some = features[rows][:, :_FIRST_VALUES]
        return [{f"x{place}": value for place, value in enumerate(row)} for row in some.tolist()]

    return read


def _nothing_known(selection: Selection) -> tuple[Examples, Examples]:
    from uniproto.report.examples import Examples

    m, n = selection.shape
    return Examples(m), Examples(n)


def _asks_for_columns(options: argparse.Namespace) -> bool:
    return any((options.labels, options.text, options.images, options.map))


def _require_same_question(folder: Path, selection: Selection, problem: Problem) -> None:
    import numpy as np

    from uniproto.storage import damaged

    rows = selection.indices
    if selection.shape != problem.costs.shape or selection.k != problem.k:
        raise damaged(folder, ValueError("its files answer another question than its inputs ask"))
    if len(np.unique(rows)) < len(rows) or rows.min() < 0 or rows.max() >= problem.m:
        raise damaged(folder, ValueError("its indices are not different rows of the source"))


def _comparison(folder: Path, selection: Selection) -> dict[str, Any] | None:
    """What `uniproto compare` left in the folder, if it is about the same question."""
    path = folder / _COMPARISON
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        same = (record["k"], tuple(record["shape"]), record["metric"]) == (
            selection.k,
            selection.shape,
            selection.metric,
        )
        [summary["cost"] for summary in record["summary"]]
        [row["cost"] for row in record["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(
            f"{path}: the file must hold a comparison. It could not be read ({error}). Remove it, "
            "or run 'uniproto compare' again."
        ) from error
    return record if same else None


def _commands(manifest: Mapping[str, Any], options: argparse.Namespace) -> list[tuple[str, str]]:
    found = []
    if recorded := manifest.get("arguments"):
        from uniproto.cli import build_parser

        unsaid = vars(build_parser().parse_args(["select", "POOL", "-k", "1", "-o", "OUT"]))
        words = ["uniproto", "select", str(recorded.get("pool"))]
        for name, value in recorded.items():
            # 0 equals False, and yet --distinct 0 is not the default.
            usual = value is None or (type(value), value) == (
                type(unsaid.get(name)),
                unsaid.get(name),
            )
            if name in ("pool", "output") or (usual and name != "k"):
                continue
            flag = "-k" if name == "k" else f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
        found.append(("The selection", shlex.join([*words, "-o", str(recorded.get("output"))])))
    words = ["uniproto", "report", options.folder]
    if options.output is not None:
        words += ["-o", options.output]
    for name in ("labels", "text", "images", "map", "title", "random"):
        value = getattr(options, name)
        words += [] if value is None else [f"--{name}", str(value)]
    return [*found, ("This page", shlex.join(words))]


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    return number
