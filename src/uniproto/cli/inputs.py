"""From a command's options and the files they name to a `Problem`."""

from __future__ import annotations

import argparse
import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from uniproto.cli.input_file import read_file
from uniproto.cli.limits import limited_column, limits_of
from uniproto.cli.option_values import (
    checked_distance,
    min_distance,
    names_weights,
    read_budgets,
    row_numbers,
    with_bandwidth,
)
from uniproto.errors import (
    InputFileError,
    invalid,
    unknown_name,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.data.tables import InputData
    from uniproto.features.compared_rows import Given
    from uniproto.features.files import EmbeddedData
    from uniproto.features.preparation import Preparation
    from uniproto.problem.near import NearRows
    from uniproto.problem.problem import Problem


@dataclass(frozen=True)
class Inputs:
    """The input files of a command, and the arguments of its `Problem`."""

    pool: InputData
    target: InputData | None
    k: int | None
    arguments: dict[str, Any]  # of `Problem`
    given: Given  # the rows as they are in the files, for people to look at
    near: tuple[tuple[str, NearRows], ...] = ()  # rows excluded, and the files they are near to

    def problem(self, **machine: Any) -> Problem:
        """The checked problem; `machine` is what `Compute` takes."""
        from uniproto.problem.problem import Problem
        from uniproto.problem.values import Compute

        problem = Problem(**self.arguments, compute=Compute(**machine))
        if self.k is not None:
            problem = problem.with_k(self.k)
        return problem.changed(given=self.given)

    def without(self, rows: list[int]) -> Inputs:
        """The same inputs, of which these rows may not be chosen either."""
        excluded = sorted({*(self.arguments["exclude"] or ()), *rows})
        return replace(self, arguments={**self.arguments, "exclude": excluded})

    def noting(self, path: str, others: InputData, near: NearRows) -> Inputs:
        """The same inputs, of which rows were excluded because they are near to those of a file.

        The rows they are near to are noted by their numbers in that file.
        """
        noted = replace(near, nearest=file_rows(others)[0][near.nearest])
        return replace(self, near=(*self.near, (path, noted)))

    @property
    def near_rows(self) -> list[int]:
        """The rows of the pool that were excluded for being near to others."""
        return sorted({row for _, near in self.near for row in near.rows.tolist()})

    def identities(self) -> dict[str, Any]:
        """What a manifest says about the input files."""
        return {
            "source": self.pool.identity(),
            "target": self.target.identity() if self.target else None,
        }


def read_inputs(options: argparse.Namespace) -> Inputs:
    """Read the files that options name. Every command goes through here, so that none drifts."""
    from uniproto.problem.checks import AUTO
    from uniproto.problem.values import Groups

    label_column = options.labels
    weight_column = None if names_weights(options.weights) else options.weights
    limited = limited_column(options)
    if options.groups is None:
        read_budgets(options.budgets, None)
    columns = (options.id, options.groups, weight_column, label_column, limited)
    named = [name for name in columns if name]
    pool = read_file(options, options.pool, named, None)
    target = read_file(options, options.target, named, pool) if options.target else None
    near_to = None if hasattr(options, "near_rows") else getattr(options, "exclude_near", None)
    others = read_file(options, near_to[0], named, pool) if near_to else None
    pool, target, given = _comparable(pool, target, options)
    metric = options.metric
    if metric is None:
        metric = AUTO if given.preparation is None else "euclidean"
    if (sample := getattr(options, "target_sample", None)) is not None:
        target = _sampled(target or pool, sample, options)
    aim = target or pool
    weights = _weights(options.weights, label_column, pool, aim)
    if label_column:
        aim.column(label_column, "--labels")
    groups = pool.column(options.groups, "--groups") if options.groups else None
    arguments = {
        "source": pool.features,
        "target": target.features if target else None,
        "metric": with_bandwidth(metric, options.bandwidth),
        "target_weights": weights,
        "groups": None
        if groups is None
        else Groups(
            groups, _target_groups(options.groups, target), read_budgets(options.budgets, groups)
        ),
        "limits": limits_of(options, pool),
        "include": _rows_with_vectors(row_numbers(options.initial, "--initial"), pool, "--initial"),
        "exclude": _rows_with_vectors(row_numbers(options.exclude, "--exclude"), pool, "--exclude"),
        "min_distance": min_distance(options.distinct),
        "seed": options.seed,
    }
    if getattr(options, "target_sample", None) is not None and target is not None:
        given = replace(given, target=target.table)
    inputs = Inputs(pool, target, options.k, arguments, given)
    if (rows := getattr(options, "near_rows", None)) is not None:
        # A record names the rows, so that the file they were near to may be gone.
        return inputs.without(_rows_with_vectors(rows, pool, "near_rows") or [])
    if others is None:
        return inputs
    path, text = options.exclude_near
    near = _near_rows(inputs, others, checked_distance(text))
    return inputs.without(near.rows.tolist()).noting(path, others, near)


def _comparable(
    pool: InputData, target: InputData | None, options: argparse.Namespace
) -> tuple[InputData, InputData | None, Given]:
    """The same files with features to compare, and what became of their columns."""
    import pyarrow as pa

    from uniproto.data.arrays import as_matrix
    from uniproto.data.columns import numeric_matrix, split_names
    from uniproto.data.tables import aligned_columns
    from uniproto.features.compared_rows import Given, compared_rows
    from uniproto.features.preparation import Preparation

    aim = target or pool
    shown = Given(
        pool.features if pool.table is None else pool.table,
        aim.features if aim.table is None else aim.table,
        () if getattr(pool, "embedded", None) is not None else pool.feature_columns,
    )
    if not isinstance(pool.features, pa.Table):
        return pool, target, shown
    if target is not None and not isinstance(target.features, pa.Table):  # an array beside a table
        numbers = numeric_matrix(pool.features, str(pool.path))
        return replace(pool, features=numbers), target, shown
    named = list(pool.feature_columns) if getattr(options, "features", None) else None
    rows = compared_rows(
        pool.features,
        None if target is None else target.features,
        prepare=getattr(options, "prepare", None),
        use=named,
        categories=split_names(
            getattr(options, "categories", None) or (), pool.features.column_names
        ),
        scale=getattr(options, "scale", "robust"),
    )
    preparation = rows.given.preparation
    columns = rows.given.columns
    ready = replace(pool, features=as_matrix(rows.source, str(pool.path)), feature_columns=columns)
    if target is not None:
        aim_rows = rows.target
        if preparation is None:  # whose columns are those of the source, in its order
            order = aligned_columns(list(target.feature_columns), target.path, columns, pool.path)
            aim_rows = target.features.select(order)
        matrix = as_matrix(aim_rows, str(target.path))
        target = replace(target, features=matrix, feature_columns=columns)
    if isinstance(preparation, Preparation):
        preparation = _with_options(preparation, pool, options)
    return ready, target, replace(shown, columns=columns, preparation=preparation)


def _with_options(
    preparation: Preparation, pool: InputData, options: argparse.Namespace
) -> Preparation:
    """Name the columns that options set aside, too."""
    assert pool.table is not None
    said = {
        getattr(options, option): f"named by --{option}"
        for option in ("id", "labels", "groups", "weights")
        if getattr(options, option, None)
    }
    if (limited := limited_column(options)) is not None:
        said[limited] = "its labels are limited"
    known = {column.name for column in preparation.columns} | set(preparation.aside)
    rest = [name for name in pool.table.column_names if name not in known]
    return replace(
        preparation,
        aside={**preparation.aside, **{name: said.get(name, "ignored") for name in rest}},
    )


def _target_groups(name: str | None, target: InputData | None) -> NDArray[Any] | None:
    if name is None or target is None:
        return None
    if target.table is not None and name not in target.table.column_names:
        raise InputFileError(
            f"{target.path}: the column {name!r} of --groups must be in the target, too. It is "
            "not. Where the target has no such labels, limit the sources of POOL instead: "
            f"--at-most, --at-least or --budget {name}:LABEL=N."
        )
    return target.column(name, "--groups")


def _near_rows(inputs: Inputs, others: InputData, distance: float) -> NearRows:
    """The rows of the pool that are too close to those of another file."""
    from uniproto.data.arrays import as_matrix
    from uniproto.problem.checks import AUTO, metric_for
    from uniproto.problem.near import rows_near
    from uniproto.problem.values import metric_of

    metric = metric_of(inputs.arguments["metric"])
    if metric == AUTO:
        metric = metric_for(as_matrix((inputs.target or inputs.pool).features, "target"))
    return rows_near(
        inputs.pool.features,
        inputs.given.features(others.features, str(others.path)),
        distance,
        metric=metric,
        name="--exclude-near",
    )


def _sampled(data: InputData, size: int, options: argparse.Namespace) -> InputData:
    """Some rows of a target, drawn with the seed; all of them would have been too many."""
    from uniproto.data.arrays import sampled_rows
    from uniproto.data.tables import SampledData
    from uniproto.geometry.costs import MATRIX_METRICS

    for option in ("text", "images"):
        if getattr(options, option, None) is not None:
            raise invalid("--target-sample", f"excludes --{option}", size, "Drop one of the two.")
    if options.metric in MATRIX_METRICS:
        raise invalid(
            "--target-sample", "needs a metric of vectors", f"--metric {options.metric}", "Drop it."
        )
    rows = sampled_rows(len(data.features), size, options.seed, "--target-sample")
    return SampledData(
        data.path,
        data.sha256,
        data.features[rows],
        None if data.table is None else data.table.take(rows),
        data.feature_columns,
        seed=options.seed,
    )


def _weights(text: str | None, labels: str | None, pool: InputData, aim: InputData) -> Any:
    """A column of the target, or the weights that a word names."""
    from uniproto.problem.values import Balanced
    from uniproto.problem.weights import WEIGHTS, density_from

    if text is None:
        return None
    columns = [] if aim.table is None else aim.table.column_names
    if not names_weights(text):
        if text not in columns and difflib.get_close_matches(text, WEIGHTS, cutoff=0.7):
            raise unknown_name("--weights", text, [*columns, *WEIGHTS])
        return aim.column(text, "--weights")
    for data in (pool, aim):
        if data.table is not None and text in data.table.column_names:
            raise invalid(
                "--weights",
                "must be the name of a column, or a word that is none",
                f"{text!r}, which is both, because {data.path.name} has such a column",
                "Rename the column, or leave it out of the file.",
            )
    if text.startswith("density"):
        return density_from(text, "--weights")
    if text != "balanced":
        raise invalid("--weights", "takes no options for balanced", repr(text), "Drop them.")
    if labels is None:
        raise invalid(
            "--labels", "must be given with --weights balanced", "none", "Name the classes' column."
        )
    return Balanced(aim.column(labels, "--labels"))


def input_paths(options: argparse.Namespace) -> list[str]:
    """What POOL and --target name: paths or patterns, but not addresses in a store."""
    from uniproto.data.files import possible_path

    near = getattr(options, "exclude_near", None) or [None]
    named = (options.pool, options.target, near[0])
    given = [text for text in named if text and "://" not in text]
    return [str(possible_path(text)) for text in given]


def recorded(
    options: argparse.Namespace, weights: Any, inputs: Inputs | None = None
) -> dict[str, Any]:
    """The options as a manifest records them."""
    given = {name: value for name, value in vars(options).items() if name not in ("run", "quiet")}
    from uniproto.problem.weights import Density

    if isinstance(weights, Density):  # whatever defaults become
        given["weights"] = str(weights)
    if inputs is not None and inputs.near:
        given["near_rows"] = file_rows(inputs.pool)[0][inputs.near_rows].tolist()
    return given


def _rows_with_vectors(rows: list[int] | None, pool: InputData, parameter: str) -> list[int] | None:
    """Rows of a file as rows of its vectors, which skipped rows do not have."""
    if rows is None or not has_skipped_rows(pool):
        return rows
    numbers, count = file_rows(pool)
    places = {int(row): place for place, row in enumerate(numbers)}
    for row in rows:
        if not 0 <= row < count:
            raise invalid(
                parameter, f"must hold row numbers from 0 to {count - 1}", row, "Count from 0."
            )
        if row not in places and parameter == "--initial":
            raise invalid(
                parameter,
                "must hold rows that have a vector",
                f"the skipped row {row}",
                "Drop it.",
            )
    return [places[row] for row in rows if row in places]


def has_skipped_rows(data: InputData) -> bool:
    """Whether embedding skipped rows of this input."""
    embedded = getattr(data, "embedded", None)
    return bool(embedded is not None and embedded.left_out)


def file_rows(data: InputData) -> tuple[NDArray[Any], int]:
    """The numbers that rows of an input have in its file, and how many the file has."""
    import numpy as np

    if not has_skipped_rows(data):
        return np.arange(len(data.features)), len(data.features)
    embedded: EmbeddedData = data  # type: ignore[assignment]
    assert embedded.embedded is not None
    assert embedded.items is not None
    return embedded.embedded.rows, len(embedded.items)
