"""Saved results in which somebody has changed one field, and signed what he changed."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from .places import new_folder
from .saved import CERTIFICATE, MANIFEST, PLAN, SELECTION, Change, sound_results

Place = tuple[Any, ...]


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every single value of a manifest, and where it is."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in inner:
        if isinstance(entry, dict | list) and entry:
            yield from _leaves(entry, (*place, key))
        else:
            yield (*place, key), entry


def _others(value: Any) -> list[Any]:
    """What could be written instead: a little different, very different, or of another kind."""
    kinds: list[Any] = [
        None,
        True,
        False,
        1,
        0.5,
        "",
        "0",
        "0,1,2",
        [],
        {},
        math.inf,
        math.nan,
        10**400,
    ]
    if isinstance(value, int | float) and not isinstance(value, bool):
        near = [value + 1, value - 1] if isinstance(value, int) else []
        kinds += [*near, value * (1 + 1e-6), value * (1 - 1e-6), value * 10, -value, 1e308]
    if isinstance(value, str):
        kinds += [value + " ", value[1:], "euclidean", "random", "l1"]
    return [other for other in kinds if repr(other) != repr(value)]


@cache
def _places(folder: Path) -> list[tuple[Place, Any]]:
    return list(_leaves(json.loads((folder / MANIFEST).read_text("utf-8"))))


def _forge_manifest(draw: st.DrawFn, folder: Path, sound: Path) -> str:
    place, value = draw(st.sampled_from(_places(sound)))
    other = draw(st.sampled_from(_others(value)))
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    entry = manifest
    for key in place[:-1]:
        entry = entry[key]
    entry[place[-1]] = other
    _write(folder, manifest)
    return f"{'.'.join(map(str, place))}: {value!r} is now {other!r}"


def _forge_column(draw: st.DrawFn, folder: Path, sound: Path) -> str:
    table = pq.read_table(folder / SELECTION)
    name = draw(st.sampled_from(["index", "gain", "mass"]))
    values = table.column(name).to_pylist()
    place = draw(st.integers(0, len(values) - 1))
    near = values[place] * (1 + 1e-6) if isinstance(values[place], float) else values[place] + 1
    values[place] = draw(st.sampled_from([near, 0, values[place - 1], -values[place]]))
    column = pa.array(values, table.column(name).type, safe=False)
    pq.write_table(
        table.set_column(table.column_names.index(name), name, column), folder / SELECTION
    )
    return f"{name}[{place}] is now {values[place]!r}"


def _forge_array(draw: st.DrawFn, folder: Path, sound: Path) -> str:
    file = draw(st.sampled_from([name for name in (PLAN, CERTIFICATE) if (folder / name).exists()]))
    with np.load(folder / file) as archive:
        arrays = dict(archive)
    names = {"data", "indices", "prices", "prototype_ids", "target_ids"} & arrays.keys()
    name = draw(st.sampled_from(sorted(names)))
    place = draw(st.integers(0, arrays[name].size - 1))
    if name == "indices":
        arrays[name][place] = (arrays[name][place] + 1) % 14
    elif name.endswith("_ids"):
        arrays[name][place] = draw(st.sampled_from(["row 3", "row 99", "", arrays[name][0]]))
    else:
        arrays[name][place] *= draw(st.sampled_from([1 + 1e-6, 0.5, 0.0, 1e6, -1.0]))
    np.savez(folder / file, **arrays)
    return f"{file}, {name}[{place}] is now {arrays[name][place]!r}"


def _forge_bound(draw: st.DrawFn, folder: Path, sound: Path) -> str:
    """A higher bound, and prices that are to excuse it: shifted, scaled, or one of them huge."""
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    if "certificate" not in manifest:
        return _forge_array(draw, folder, sound)
    with np.load(folder / CERTIFICATE) as archive:
        prices = archive["prices"]
    by = draw(st.sampled_from([1e14, 1e16, 1e300, -1e14, 1e3]))
    kind = draw(st.sampled_from(["all more", "all times", "one more", "one less"]))
    if kind.startswith("one"):
        prices[draw(st.integers(0, len(prices) - 1))] += by if kind == "one more" else -by
    else:
        prices = prices + by if kind == "all more" else prices * by
    np.savez(folder / CERTIFICATE, prices=prices)
    cost, record = manifest["cost"], manifest["certificate"]
    bound = record["lower_bound"] * draw(st.sampled_from([1 + 1e-7, 1.001, 1.1, 5.0]))
    bound = draw(st.sampled_from([bound, cost]))
    gap = {"gap": max(cost / bound - 1, 0.0), "absolute_gap": max(cost - bound, 0.0)}
    record.update(lower_bound=bound, **gap)
    (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    return f"prices: {kind} by {by}, bound {bound!r}"


def _write(folder: Path, manifest: Any) -> None:
    """With the digests of the files as they are, if there still is a place for digests."""
    if isinstance(manifest.get("files"), dict):
        for name in manifest["files"]:
            if (folder / name).is_file():
                content = (folder / name).read_bytes()
                manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")


@st.composite
def forged_results(draw: st.DrawFn) -> Change:
    """A result of the command line with one field changed, and signed again."""
    sound = draw(st.sampled_from(sound_results()[1:]))
    folder = new_folder() / "out"
    shutil.copytree(sound, folder)
    ways = [_forge_manifest, _forge_manifest, _forge_column, _forge_array, _forge_bound]
    forge = draw(st.sampled_from(ways))
    what = forge(draw, folder, sound)
    if forge is not _forge_manifest:
        _write(folder, json.loads((folder / MANIFEST).read_text("utf-8")))
    return Change(sound, folder, what)


HOSTILE_PATHS = [
    *("/dev/zero", "/dev/full", "/dev/tty", "/proc/self/mem", "/etc", "no/such/*.parquet"),
    *("file:///dev/zero", "s3://bucket/x", "http://127.0.0.1/"),
    *(
        "../../../../../../../dev/zero",
        "a" * 5000,
        "\0",
        "",
        "~",
        "\x1b[2J",
    ),
    None,
]


def hostile_result(path: str | None, field: str) -> Path:
    """A sound result whose record leads elsewhere; with `relative`, its own path is nowhere."""
    folder = new_folder() / "out"
    from_files = (f for f in sound_results() if "inputs" in json.loads((f / MANIFEST).read_text()))
    shutil.copytree(next(from_files), folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    source, place = manifest["inputs"]["source"], manifest["places"]["source"]
    source["path"] = path if field == "path" else "/nowhere/pool.npy"
    place["relative"] = path if field == "relative" else None
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder
