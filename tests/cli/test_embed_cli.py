"""`uniproto embed`, and `uniproto select` with texts and pictures."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

pytest.importorskip("transformers")
pytest.importorskip("PIL")

from PIL import Image

import uniproto
from uniproto.features import embed_text
from uniproto.features.cache import DATABASE

TEXTS = [
    "cats purr",
    "dogs bark loudly",
    "the bank raised its rates",
    "",
    "kittens play with wool",
    "markets fell sharply",
    "puppies run in the park",
    "   ",
    "rain is coming",
    "snow is expected tomorrow",
    "the sun will shine",
    "shares rose",
]
KEPT = [row for row, text in enumerate(TEXTS) if text.strip()]
K = 4


@pytest.fixture(autouse=True)
def files(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIPROTO_CACHE", str(inside / "cache"))
    rows = range(len(TEXTS))
    table = pa.table(
        {
            "doc": [f"d{row}" for row in rows],
            "text": TEXTS,
            "kind": ["even" if row % 2 == 0 else "odd" for row in rows],
            "weight": [1.0 + row for row in rows],
        }
    )
    pq.write_table(table, "t.parquet")
    pyarrow.csv.write_csv(table, "t.csv")
    Path("pics/sub").mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = []
    for row in range(8):
        names.append(f"{'sub/' if row % 2 else ''}p{row}.png")
        pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(Path("pics", names[-1]))
    pq.write_table(
        pa.table(
            {
                "file_name": names,
                "beside": [f"pics/{name}" for name in names],
                "image": [
                    {"bytes": Path("pics", name).read_bytes(), "path": name} for name in names
                ],
            }
        ),
        "pictures.parquet",
    )


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run) -> Run:
    def command(*arguments: object) -> tuple[int, str, str]:
        status, out, err = run(*arguments)
        # On a busy machine a model takes longer to load than lines of progress are apart.
        return status, out, re.sub(r"uniproto: embedding \w+: .* passed\n", "", err)

    return command


def test_embed_then_select(run: Run) -> None:
    status, out, err = run(
        "embed", "t.csv", "--text", "text", "--on-error", "skip", "-o", "v.parquet"
    )
    assert (status, err) == (0, "")
    assert "rows skipped: 2: row 3 (empty), row 7 (only white space)" in out
    table = pq.read_table("v.parquet")
    assert table["doc"].to_pylist() == [f"d{row}" for row in KEPT]
    assert table.schema.field("embedding").type == pa.list_(pa.float32())
    expected = embed_text([TEXTS[row] for row in KEPT]).vectors
    np.testing.assert_array_equal(np.stack(table["embedding"].to_numpy()), expected)
    record = json.loads(table.schema.metadata[b"uniproto.embedding"])
    assert record["model"] == "all-MiniLM-L6-v2"
    assert record["left_out"] == [[3, "empty"], [7, "only white space"]]
    assert Path("v.left-out.csv").read_text().split() == [
        "row,reason", "3,empty", "7,only", "white", "space",
    ]  # fmt: skip
    assert run("select", "v.parquet", "--column", "embedding", "-k", K, "-o", "out")[0] == 0


def test_a_stale_list_goes(run: Run) -> None:
    """One of an earlier run, that is: a stranger's file of that name is never touched."""
    assert run("embed", "t.parquet", "--on-error", "skip", "-o", "v.parquet")[0] == 0
    assert Path("v.left-out.csv").exists()
    assert run("embed", "pics", "-o", "v.parquet")[0] == 0
    assert not Path("v.left-out.csv").exists()


@pytest.mark.parametrize(
    "data",
    [
        "pictures.parquet --images image",
        "pictures.parquet --images beside",
        "pictures.parquet --images pics",
        "pics",
        "pics --images",
        "pics --images pics",
    ],
)
def test_every_way_to_name_pictures(run: Run, data: str) -> None:
    folder, *images = data.split()
    status, _, err = run("embed", folder, "-o", "v.parquet", *images)
    assert (status, err) == (0, "")
    table = pq.read_table("v.parquet")
    assert table.num_rows == 8
    assert len(table["embedding"][0]) == 1280
    if folder == "pics":
        assert table["path"].to_pylist()[0] == "p0.png"


# Selecting in one command


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--target-weights weight",
        "--target-weights balanced --labels kind",
        "--target-weights density:q=2",
        "--groups kind",
        "--include 8 --exclude 0,3",
        "--min-distance",
        "--certify",
    ],
)
def test_rows_are_numbered_as_in_the_file(run: Run, options: str) -> None:
    """The same picks as from the rows that were kept, by the numbers of the whole file."""
    given = ["-k", K, *options.split()]
    status, _, err = run(
        "select", "t.parquet", "--text", "text", "--id", "doc", "--on-error", "skip", *given,
        "-o", "out",
    )  # fmt: skip
    assert (status, err) == (0, "")
    found = uniproto.Selection.load("out")
    assert not set(found.indices.tolist()) & {3, 7}

    kept = pq.read_table("t.parquet").take(KEPT)
    vectors = embed_text([TEXTS[row] for row in KEPT]).vectors
    kept = kept.append_column("embedding", pa.array(vectors.tolist(), pa.list_(pa.float32())))
    pq.write_table(kept, "kept.parquet")
    inner = [KEPT.index(8), KEPT.index(0)]
    moved = options.replace("8 --exclude 0,3", f"{inner[0]} --exclude {inner[1]}").split()
    assert (
        run("select", "kept.parquet", "--column", "embedding", "-k", K, *moved, "-o", "o2")[0] == 0
    )
    alone = uniproto.Selection.load("o2")
    assert found.indices.tolist() == [KEPT[row] for row in alone.indices]
    assert found.cost == pytest.approx(alone.cost)
    assert found.details.shape == (len(TEXTS), len(TEXTS))

    chosen = pq.read_table("out/selection.parquet")
    assert chosen["doc"].to_pylist() == [f"d{row}" for row in found.indices]
    rows = pq.read_table("out/prototypes.parquet")
    assert rows["text"].to_pylist() == [TEXTS[row] for row in found.indices]
    plan = sp.load_npz("out/plan.npz").toarray()
    assert not plan[:, [3, 7]].any()
    np.testing.assert_allclose(plan[:, KEPT], alone.plan.toarray())

    assert run("verify", "out")[:1] == (0,)
    assert run("certify", "out")[:1] == (0,)
    status, out, _ = run("verify", "out")
    assert (status, "verified: yes" in out) == (0, True)


def test_a_page_numbers_rows_as_in_the_file(run: Run) -> None:
    pq.write_table(pa.table({"text": ["a storm", "", "shares", "rain"]}), "wanted.parquet")
    options = ["--target", "wanted.parquet", "--text", "text", "--on-error", "skip", "-k", 2]
    assert run("select", "t.parquet", *options, "-o", "out")[0] == 0
    assert run("report", "out", "--random", 0)[0] == 0
    page = Path("out/report.html").read_text("utf-8")
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    rows = uniproto.Selection.load("out").indices
    assert [card["row"] for card in data["prototypes"]] == rows.tolist()
    assert sorted(data["items"]["row"]) == [0, 2, 3]
    for row in rows:
        assert TEXTS[row] in page


def test_a_result_is_verified_with_vectors_of_other_batches(run: Run) -> None:
    """They differ in the last digits, which is no reason to say no."""
    options = ["--text", "text", "--on-error", "skip"]
    assert run("select", "t.csv", *options, "-k", K, "-o", "out", "--certify")[0] == 0
    shutil.rmtree("cache")
    assert run("embed", "t.csv", *options, "--batch-size", 1, "-o", "v.parquet")[0] == 0
    status, out, err = run("verify", "out")
    assert status == 0, out + err


def test_pictures_are_inputs_too(run: Run) -> None:
    Path("pics/bad.jpg").write_bytes(b"no picture")
    options = ["--images", "--on-error", "skip", "-k", 3, "-o", "out"]
    status, out, err = run("select", "pics", *options)
    assert (status, err) == (0, "")
    assert "row 0 (bad.jpg: not a picture of a known format)" in out
    manifest = json.loads(Path("out/manifest.json").read_text())
    record = manifest["inputs"]["source"]["embedding"]
    assert (record["model"], record["column"]) == ("efficientnet-lite0", "path")
    assert run("verify", "out")[0] == 0
    Image.new("RGB", (9, 9)).save("pics/p0.png")
    status, out, _ = run("verify", "out")
    assert status == 1
    assert "the source must be what the folder was made from" in out


def _change_manifest(change: Callable[[dict[str, Any]], None]) -> None:
    path = Path("out/manifest.json")
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


@pytest.fixture
def no_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would load a model, or ask the hub for one, is a failure."""
    import huggingface_hub

    def loaded(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    download = huggingface_hub.snapshot_download

    def local_only(*arguments: Any, **options: Any) -> str:
        assert options["local_files_only"], "the hub was asked"
        return str(download(*arguments, **options))

    monkeypatch.setattr("uniproto.features.text.TransformersModel._load_tokenizer", loaded)
    monkeypatch.setattr("uniproto.features.text.TransformersModel._load_network", loaded)
    monkeypatch.setattr("huggingface_hub.snapshot_download", local_only)


@pytest.fixture
def selected(run: Run) -> None:
    status, _, err = run(
        "select", "t.parquet", "--text", "text", "--on-error", "skip", "-k", 3, "-o", "out"
    )
    assert (status, err) == (0, "")


@pytest.mark.usefixtures("selected", "no_loading")
def test_a_stranger_names_another_model(run: Run) -> None:
    """A folder with a model in it, of which nothing is run or loaded: its digest is another."""
    Path("evil").mkdir()
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}
    Path("evil/config.json").write_text(json.dumps(config))
    Path("evil/evil.py").write_text("raise SystemExit('code of a stranger')")
    _change_manifest(lambda m: m["inputs"]["source"]["embedding"].update(model="evil"))
    for command in ("report", "certify"):
        status, _, err = run(command, "out")
        assert status == 2
        assert "The model 'evil' must be the one with the digest" in err
    status, out, _ = run("verify", "out")
    assert status == 1
    assert "not loaded" in out


HUB = "for a record that names a model"


@pytest.mark.usefixtures("selected", "no_loading")
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("stranger/model", HUB),
        ("timm/resnet18", HUB),
        ("hf-hub:stranger/model", HUB),
        ("/", "must be a model's folder"),  # the whole disk
        (None, "its record of that is missing"),  # no digest to compare a model with
    ],
)
def test_a_record_never_downloads_or_loads_a_model(run: Run, model: str | None, said: str) -> None:
    def change(manifest: dict[str, Any]) -> None:
        if model is None:
            del manifest["inputs"]["source"]["embedding"]
            manifest["arguments"]["features"]["model"] = "stranger/model"
        else:
            manifest["inputs"]["source"]["embedding"]["model"] = model

    _change_manifest(change)
    status, _, err = run("verify", "out")
    assert status == 2
    assert said in err


@pytest.mark.usefixtures("selected")
def test_a_record_does_not_choose_the_cache(run: Run) -> None:
    _change_manifest(lambda m: m["arguments"]["features"].update(cache="planted"))
    assert run("verify", "out")[0] == 0
    assert not Path("planted").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("t.parquet --text txt", "Did you mean 'text'"),
        ("t.parquet --text weight", "--text must name a column of texts"),
        ("t.parquet --images nowhere", "name the folder that its file names begin at"),
        ("t.parquet --text text --images text", "--text excludes --images"),
        ("t.parquet --text text --column weight", "--column excludes --text"),
        ("t.parquet --text text --metric precomputed", "--metric must compare the vectors"),
        ("t.parquet --text text", "row 3 (empty)"),
        ("t.parquet --text text --on-error skip --include 3", "row 3, which was skipped"),
        ("t.parquet --text text --on-error skip --exclude 12", "from 0 to 11"),
        ("pics", "Pass --images"),
        ("pics --images other", "--images must be"),
        ("pics --text text", "Pass --images"),
        ("t.parquet --labels kindd", "--labels must be one of"),
    ],
)
def test_refusals(run: Run, arguments: str, said: str) -> None:
    pool, *options = arguments.split()
    status, _, err = run("select", pool, "-k", 2, "-o", "out", *options)
    assert status == 2
    assert said in err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("t.parquet -o v.csv", "must end in .parquet"),
        ("pics/p0.png -o v.parquet", "is a single picture"),
        ("none.csv -o v.parquet", "there is no such file"),
        ("kept.parquet -o v.parquet", "has a column 'embedding' already"),
    ],
)
def test_refusals_of_embed(run: Run, arguments: str, said: str) -> None:
    pq.write_table(pa.table({"text": ["a"], "embedding": [1.0]}), "kept.parquet")
    status, _, err = run("embed", *arguments.split())
    assert status == 2
    assert said in err
    assert not Path("v.parquet").exists()


def _vectors_on_disk() -> int:
    found = list(Path("cache").rglob(DATABASE))
    if not found:
        return 0
    with contextlib.closing(sqlite3.connect(found[0], timeout=60)) as database:
        try:
            return int(database.execute("SELECT COUNT(*) FROM vectors").fetchone()[0])
        except sqlite3.OperationalError:  # it has no table yet
            return 0


def test_every_row_is_counted(run: Run) -> None:
    pq.write_table(pa.table({"text": ["cats", "dogs"] * 15}), "few.parquet")
    status, out, _ = run("embed", "few.parquet", "--batch-size", "4", "-o", "v.parquet")
    assert status == 0
    assert "computed    2\n" in out
    assert "from cache  0\n" in out
    assert "repeated    28 (" in out
    _, out, _ = run("embed", "few.parquet", "-o", "v.parquet")
    assert "from cache  30\n" in out
    assert "repeated" not in out


@pytest.mark.parametrize(
    ("batches", "words", "said"),
    [
        (0, [], "no result was written"),
        (2, [], "the same command goes on from the vectors that are in the cache"),
        (2, ["--no-cache"], "no result was written"),
    ],
)
def test_an_interrupted_run_says_what_it_leaves(
    batches: int, words: list[str], said: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uniproto.features import text

    whole, calls = text.TransformersModel.vectors, []

    def few_times(self: Any, inputs: Any) -> Any:
        calls.append(1)
        if len(calls) > batches:
            raise KeyboardInterrupt
        return whole(self, inputs)

    monkeypatch.setattr(text.TransformersModel, "vectors", few_times)
    command = ["embed", "t.parquet", "--text", "doc", "--batch-size", "2", "-o", "v.parquet"]
    status, _, err = run(*command, *words)
    assert (status, err) == (130, f"uniproto: interrupted; {said}.\n")


@pytest.mark.slow
def test_a_killed_run_goes_on(run: Run) -> None:
    """Batches that were finished when the process was killed are not computed again."""
    texts = [f"sentence number {row}" for row in range(64)]
    pq.write_table(pa.table({"text": texts}), "many.parquet")
    slow = """
import signal
from uniproto.cli import main
from uniproto.features import text
whole, calls = text.TransformersModel.vectors, []
def four_times(self, inputs):
    calls.append(1)
    if len(calls) > 4:
        signal.pause()  # until it is killed
    return whole(self, inputs)
text.TransformersModel.vectors = four_times
main(["embed", "many.parquet", "--batch-size", "4", "-o", "v.parquet"])
"""
    process = subprocess.Popen([sys.executable, "-c", slow], env=dict(os.environ))
    while _vectors_on_disk() < 12 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Path("v.parquet").exists()
    finished = _vectors_on_disk()
    assert finished in (12, 16)
    status, out, _ = run("embed", "many.parquet", "-o", "v.parquet")
    assert status == 0
    assert f"computed    {64 - finished}\n" in out
    assert f"from cache  {finished}\n" in out
    assert pq.read_table("v.parquet").num_rows == 64
