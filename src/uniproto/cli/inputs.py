"""From what was asked and the files it names to a `Problem`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uniproto.cli.option_values import (
    checked_distance,
    limited_column,
    limits_of,
    named_weights,
    problem_options,
    read_budgets,
    row_numbers,
)
from uniproto.data.arrays import as_rows, sampled_rows
from uniproto.data.files import possible_path
from uniproto.errors import InputFileError, InvalidInputError, unknown_name
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.problem.problem import Problem
from uniproto.problem.values import Balanced, Columns, Groups
from uniproto.problem.weights import WEIGHTS
from uniproto.runtime.settings import made_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.cli.spec import SelectSpec
    from uniproto.data.tables import InputData
    from uniproto.features.compared_rows import Given
    from uniproto.features.files import Items
    from uniproto.lm.features.language import LanguageFeatures
    from uniproto.problem.near import NearRows
    from uniproto.selection.selection import Selection


@dataclass(frozen=True)
class Inputs:
    """The input files of a command, and the problem they pose, for any k."""

    spec: SelectSpec
    pool: InputData
    target: InputData | None
    problem: Problem
    near: tuple[tuple[str, NearRows], ...] = ()  # rows excluded, and the files they are near to

    def excluding(self, path: str, near: NearRows) -> Inputs:
        """The same inputs without rows that are near to, or repeat, those of a file."""
        problem = self.problem.excluding(near.rows)
        return replace(self, problem=problem, near=(*self.near, (path, near)))

    @property
    def aim(self) -> InputData:
        """What the chosen rows must represent."""
        return self.target or self.pool

    @property
    def near_rows(self) -> list[int]:
        """The rows of the pool that were excluded for being near to others."""
        return sorted({row for _, near in self.near for row in near.rows.tolist()})

    def identities(self) -> dict[str, Any]:
        """What a manifest says about the input files."""
        costs: Any = self.problem.costs
        found: dict[str, Any] = {"source": self.pool.identity(), "target": None}
        if self.target is not None:
            found["target"] = self.target.identity()
        for role, data in (("source", self.pool), ("target", self.target)):
            if data is not None and _is_arrow(data.features):  # what became of a table's columns
                rows, width = len(data.features), costs.source.shape[1]
                columns = list(self.problem.given.columns)
                found[role] |= {"shape": [rows, width], "columns": columns}
        return found

    def in_files(self, selection: Selection) -> Selection:
        """The selection by the row numbers of the files, in which embedding skipped some rows."""
        pool, target = self.pool, self.aim
        if not (_skips_rows(pool) or _skips_rows(target)):
            return selection
        return selection.renumbered(pool.rows, target.rows, (pool.count, target.count))

    def in_use(self, saved: Selection) -> Selection:
        """A saved selection by the rows of the problem; one that was skipped becomes -1."""
        pool, target = self.pool, self.aim
        skips = _skips_rows(pool) or _skips_rows(target)
        if not skips or saved.details.shape != (pool.count, target.count):
            return saved
        shape = (len(pool.rows), len(target.rows))
        return saved.renumbered(_places(pool), _places(target), shape)

    def places(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Rows of the pool's file as rows of the problem, without those that were skipped."""
        places = _places(self.pool)[rows]
        return places[places >= 0]

    def asked(self) -> dict[str, Any]:
        """What a manifest says was asked."""
        rows = self.pool.rows[self.near_rows].tolist() if self.near else None
        return replace(self.spec, near_rows=rows).record()


def read_inputs(spec: SelectSpec) -> Inputs:
    """Read the files that are asked about. Every command goes through here, so that none drifts."""
    pool = read_file(spec, spec.pool)
    target = read_file(spec, spec.target, pool) if spec.target else None
    others = None
    if spec.exclude_near and spec.near_rows is None:  # a record names rows: the file may be gone
        others = read_file(spec, spec.exclude_near[0], pool)
    columns = _columns(spec, pool)
    if spec.target_sample is not None:
        target, columns = _sampled(spec, pool, target, columns)
    aim = target or pool
    groups = pool.column(spec.groups, "groups") if spec.groups else None
    excluded = {*row_numbers(spec.exclude, "exclude"), *(spec.near_rows or ())}
    if spec.labels:
        aim.column(spec.labels, "labels")
    problem = Problem(
        pool.features,
        target.features if target else None,
        target_weights=_weights(spec, pool, aim),
        groups=None
        if groups is None
        else Groups(groups, _target_groups(spec, target), read_budgets(spec.budgets, groups)),
        limits=limits_of(spec, pool),
        include=_rows_with_vectors(row_numbers(spec.include, "include"), pool, "include"),
        exclude=_rows_with_vectors(sorted(excluded), pool, "exclude"),
        features=columns,
        **problem_options(spec),
    )
    problem = problem.changed(given=_shown(spec, pool, aim, problem))
    inputs = Inputs(spec, pool, target, problem)
    if others is None or spec.exclude_near is None:
        return inputs
    path, text = spec.exclude_near
    return inputs.excluding(path, _near_rows(inputs, others, checked_distance(text)))


def _is_arrow(values: Any) -> bool:
    import pyarrow as pa

    return isinstance(values, pa.Table)


def _columns(spec: SelectSpec, pool: InputData) -> Any:
    """What becomes of the columns of a table; vectors and matrices are taken as they are."""
    from uniproto.data.columns import split_names
    from uniproto.features.preparation import Preparation

    if not _is_arrow(pool.features):
        return None
    if spec.preparation is not None:
        return Preparation.from_record(spec.preparation)
    return Columns(
        use=list(pool.feature_columns) if spec.columns else None,
        categories=split_names(spec.categories or (), pool.features.column_names),
        scale=spec.scale,
        prepare=spec.prepare,
    )


def _shown(spec: SelectSpec, pool: InputData, aim: InputData, problem: Problem) -> Given:
    """The rows as they are in the files, for people to look at, and why columns are set aside."""
    from uniproto.features.preparation import Preparation

    given = problem.given
    source, target = (each.features if each.table is None else each.table for each in (pool, aim))
    columns = () if spec.embeds else given.columns or pool.feature_columns
    preparation = given.preparation
    if isinstance(preparation, Preparation) and pool.table is not None:
        known = {column.name for column in preparation.columns} | set(preparation.aside)
        said = {name: f"named by {option}" for name, option in spec.named_columns().items()}
        if (limited := limited_column(spec)) is not None:
            said[limited[0]] = "its labels are limited"
        rest = {
            name: said.get(name, "ignored") for name in pool.table.column_names if name not in known
        }
        preparation = replace(preparation, aside={**preparation.aside, **rest})
    return replace(given, source=source, target=target, columns=columns, preparation=preparation)


def _target_groups(spec: SelectSpec, target: InputData | None) -> NDArray[Any] | None:
    if spec.groups is None or target is None:
        return None
    if target.names and spec.groups not in target.names:
        raise InputFileError(
            f"must name a column of the target, too; {target.path} has no {spec.groups!r}. If it "
            "has no such labels, limit the sources of POOL instead: --at-most, --at-least or "
            f"--budget {spec.groups}:LABEL=N.",
            parameter="groups",
        )
    return target.column(spec.groups, "groups")


def _near_rows(inputs: Inputs, others: InputData, distance: float) -> NearRows:
    """The rows of the pool that are too close to those of another file, by their numbers there."""
    from uniproto.problem.near import rows_near

    given, pool = inputs.problem.given, inputs.pool
    near = rows_near(
        given.features(pool.features) if _is_arrow(pool.features) else pool.features,
        given.features(others.features, str(others.path)),
        distance,
        metric=inputs.problem.costs.metric,
        name="exclude_near",
    )
    return replace(near, nearest=others.rows[near.nearest])


def _sampled(
    spec: SelectSpec, pool: InputData, target: InputData | None, columns: Any
) -> tuple[InputData, Any]:
    """Some rows of a target, drawn with the seed; columns are made comparable over all of them."""
    from uniproto.features.compared_rows import compared_rows

    if spec.embeds or spec.metric in MATRIX_METRICS:
        raise InvalidInputError(
            "needs rows of numbers, compared by a metric of vectors. Leave it out.",
            parameter="target_sample",
        )
    aim = target or pool
    if columns is not None:
        _, _, given = compared_rows(
            pool.features, None if target is None else target.features, **vars(columns)
        )
        columns = given.preparation or columns
    drawn = sampled_rows(len(aim.features), spec.target_sample, spec.seed, "target_sample")
    features = aim.features.take(drawn) if _is_arrow(aim.features) else aim.features[drawn]
    table = None if aim.table is None else aim.table.take(drawn)
    return replace(aim, features=features, table=table, seed=spec.seed), columns


def _weights(spec: SelectSpec, pool: InputData, aim: InputData) -> Any:
    """A column of the target, or the weights that a word names."""
    given, text = named_weights(spec), spec.target_weights
    if isinstance(given, str):
        if given not in aim.names and difflib.get_close_matches(given, WEIGHTS, cutoff=0.7):
            raise unknown_name("target_weights", given, [*aim.names, *WEIGHTS])
        return aim.column(given, "target_weights")
    for data in (pool, aim):
        if text in data.names:
            raise InvalidInputError(
                f"{text} is also the name of a column of {data.path.name}. Rename the "
                "column, or leave it out of the file.",
                parameter="target_weights",
            )
    if isinstance(given, Balanced):
        return Balanced(aim.column(given.labels, "labels"))
    return given


def input_paths(spec: SelectSpec) -> list[str]:
    """What POOL and --target name: paths or patterns, but not addresses in a store."""
    named = (spec.pool, spec.target, spec.exclude_near and spec.exclude_near[0])
    given = [text for text in named if text and "://" not in text]
    return [str(possible_path(text)) for text in given]


# One file


def read_file(spec: SelectSpec, path: str, like: InputData | None = None) -> InputData:
    """One file: its features, or the vectors of the texts or pictures in it.

    `like` is the pool, where this is another file.
    """
    from uniproto.data.tables import read_input
    from uniproto.features.files import embedded_data

    possible_path(path)
    if spec.embeds:
        if spec.metric in MATRIX_METRICS:
            raise InvalidInputError(
                f"{spec.metric} compares no vectors. Use cosine.", parameter="metric"
            )
        return embedded_data(
            read_items(spec, path, like=() if like is None else like.feature_columns),
            spec.model,
            model_digest=spec.model_digest,
            **spec.embedding(),
        )
    refuse_pictures(Path(path))
    named = spec.named_columns()
    later = (spec.target_weights, None if spec.target is None else spec.labels)
    return read_input(
        path,
        spec.column,
        named,
        like,
        required={name: named[name] for name in named if like is None and name not in later},
        features=spec.columns or (),
        ignore=spec.ignore or (),
        has_target=like is None and spec.target is not None,
        memory=spec.memory,
        encoding=spec.encoding,
        raw=spec.prepare is not False and spec.metric not in MATRIX_METRICS,
    )


def language_features(spec: SelectSpec) -> LanguageFeatures | None:
    """What a language model computes; None where texts, pictures or numbers are the features."""
    kind = "hidden" if spec.hidden else spec.gradients
    if kind is None:
        return None
    from uniproto.lm.features.language import TEMPLATE, LanguageFeatures

    if spec.model is None:
        raise InvalidInputError(
            "needs --model. Name a language model.",
            parameter="hidden" if spec.hidden else "gradients",
        )
    given = {**vars(spec), "kind": kind, "template": spec.template or TEMPLATE}
    return made_of(LanguageFeatures, given)


def read_items(
    spec: SelectSpec, path: str, *, guess: bool = False, like: Sequence[str] = ()
) -> Items:
    """What a model looks at in a file: texts, pictures, or examples of a language model.

    `like` are the columns of other examples.
    """
    features = language_features(spec)
    if features is None:
        from uniproto.features import files

        return files.read_items(path, spec.text, spec.images, guess=guess, encoding=spec.encoding)
    from uniproto.lm.features.examples import read_examples

    named = (spec.prompt, spec.answer, spec.messages)
    return read_examples(path, features, named, like, spec.encoding)


def refuse_pictures(path: Path) -> None:
    """A folder of pictures without --images: say what is missing, not that a file is."""
    from uniproto.features.files import has_pictures

    if path.is_dir() and next(path.rglob("*.parquet"), None) is None and has_pictures(path):
        raise InputFileError(f"{path}: this is a folder of pictures. Add --images.")


# Rows that embedding skipped


def _skips_rows(data: InputData) -> bool:
    return len(data.rows) < data.count


def _places(data: InputData) -> NDArray[np.intp]:
    """For each row of a file its place among those with a vector; -1 for one that was skipped."""
    places = np.full(data.count, -1)
    places[data.rows] = np.arange(len(data.rows))
    return places


def _rows_with_vectors(rows: list[int], pool: InputData, parameter: str) -> list[int]:
    """Rows of a file as rows of its vectors, which skipped rows do not have."""
    if not rows or not _skips_rows(pool):
        return rows
    places = _places(pool)[as_rows(rows, parameter, pool.count)]
    if parameter == "include" and places.min() < 0:
        row = rows[int(places.argmin())]
        raise InvalidInputError(
            f"names row {row}, which was skipped. Drop it.", parameter="include"
        )
    return [place for place in places.tolist() if place >= 0]
