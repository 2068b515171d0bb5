"""`uniproto curate` and `uniproto.lm.curate`: from a pool and a target to rows to train on."""

from __future__ import annotations

import csv
import hashlib
import html
import json
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refused

import uniproto
from support.finetuning import tiny_model
from uniproto import Limits, Text
from uniproto.cli import main
from uniproto.cli.curate import CHOSEN
from uniproto.errors import DataWarning, UniprotoError
from uniproto.lm import gradients
from uniproto.runs.records import sha256_of

K, POOL, TARGET = 24, 120, 15
TEMPLATE = "Q {instruction} A "


def examples(count, seed, kinds):
    draw = np.random.default_rng(seed)
    signs = {"add": "+", "sub": "-", "mul": "*"}
    rows = []
    for _ in range(count):
        kind = str(draw.choice(kinds))
        a, b = draw.integers(1, 99, 2).tolist()
        answer = {"add": a + b, "sub": a - b, "mul": a * b}[kind]
        rows.append({"source": kind, "instruction": f"{a}{signs[kind]}{b}", "output": str(answer)})
    return rows


POOL_ROWS = examples(POOL, 0, ["add", "sub", "mul"])
TARGET_ROWS = [
    {name: row[name] for name in ("instruction", "output")} for row in examples(TARGET, 1, ["mul"])
]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return tiny_model(tmp_path_factory.mktemp("model"), positions=64, spread=0.3)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def files(inside, monkeypatch, cache):
    monkeypatch.setenv("UNIPROTO_CACHE", str(cache))
    write("pool.jsonl", POOL_ROWS)
    write("wanted.jsonl", TARGET_ROWS)


def write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def curate(model, *words, pool="pool.jsonl", target="wanted.jsonl", k=K, out="out"):
    given = ["curate", pool, "--target", target, "-k", str(k), "-o", out]
    given += ["--template", TEMPLATE, *([] if "--text" in words else ["--width", "128"])]
    given += [] if "--keep-duplicates" in words else ["--min-distance", "1e-6"]
    given += [] if model is None else ["--model", model]
    return main([*given, *map(str, words)])


def by_gradients(model):
    features = uniproto.lm.Gradients(model, template=TEMPLATE, width=128)
    return {"features": features, "min_distance": 1e-6}


def chosen(out="out"):
    return [json.loads(line) for line in Path(out, CHOSEN).read_text("utf-8").splitlines()]


def test_from_files_to_files(model, capsys):
    assert curate(model) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    found = chosen()
    assert [row["rank"] for row in found] == list(range(1, K + 1))
    # The rows are those of the selection, in the pool's own columns.
    selection = uniproto.Selection.load("out")
    for row, index in zip(found, selection.indices, strict=True):
        assert {name: row[name] for name in POOL_ROWS[0]} == POOL_ROWS[index]
    # Each serves the targets that the plan gives it, and all of them are served.
    assert found[0]["serves"] == selection.plan[[0]].indices.tolist()
    assert {target for row in found for target in row["serves"]} == set(range(TARGET))
    mean = np.mean([row["cost"] for row in found])
    assert mean == pytest.approx(selection.cost, abs=1e-5)
    # The picks are those of the same gradients in Python.
    options = {"model": model, "template": TEMPLATE, "width": 128}
    pool, wanted = (gradients(rows, **options).vectors for rows in (POOL_ROWS, TARGET_ROWS))
    expected = uniproto.select(pool, K, wanted, min_distance=1e-6)
    np.testing.assert_array_equal(selection.indices, expected.indices)
    assert f"uniproto finetune --model {model} --data out/{CHOSEN} --method full" in said
    assert "source: chosen of the rows there are" in said
    assert "gradients of the model, of instruction, output" in said  # and of no other column
    page = Path("out/report.html").read_text("utf-8")
    assert "Where the chosen rows come from" in page
    assert POOL_ROWS[selection.indices[0]]["instruction"] in page
    # It speaks of chosen rows and their sources, each of which has a colour on the map.
    shown = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL).lower()
    assert not re.search(r"prototype|class(es)?\b", shown)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert data["coverage"] == {"source": ["add", "mul", "sub"]}
    sources = [data["coverage"]["source"][one["source"]] for one in data["prototypes"]]
    assert sources == [row["source"] for row in found]
    assert set(data["items"]["source"]) == {None}
    # The texts are on the cards: they are no levels to count.
    assert " levels<" not in page
    assert main(["verify", "out"]) == 0
    # Who changes a row to train on is found out, renewed digests or not.
    path, manifest = Path("out", CHOSEN), Path("out/manifest.json")
    honest = path.read_text("utf-8")
    for forged in (
        honest.replace(found[0]["output"], "42 and more", 1),
        "".join(honest.splitlines(keepends=True)[::-1]),
        honest + honest.splitlines(keepends=True)[0],
        honest.replace('"rank": 1,', '"rank": 2,', 1),
        honest.replace(f'"cost": {found[0]["cost"]}', f'"cost": {found[0]["cost"] + 0.01}', 1),
        "{",
    ):
        path.write_text(forged, "utf-8")
        record = json.loads(manifest.read_text("utf-8"))
        for files in ({**record["files"], CHOSEN: sha256_of(path)}, record["files"]):
            manifest.write_text(json.dumps({**record, "files": files}), "utf-8")
            assert main(["verify", "out"]) == 1
            assert CHOSEN in capsys.readouterr().out
    shutil.rmtree("out")
    assert curate(model, "--no-page", "--quiet") == 0
    assert not Path("out/report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--hidden"], ["--at-most", "source:mul=3"]])
def test_the_page_says_the_command_that_made_it(words, model):
    given = ["curate", "pool.jsonl", "--target", "wanted.jsonl", "-k", str(K), "--model", model]
    given += ["--template", TEMPLATE, "--keep-duplicates", *words, "-o", "out"]
    assert main([*given, "--quiet"]) == 0
    page = html.unescape(Path("out/report.html").read_text("utf-8"))
    said = next(
        shlex.split(line.partition("<")[0])
        for line in page.split(">")
        if line.startswith("uniproto curate ")
    )
    assert sorted(said[1:]) == sorted(given)
    shutil.rmtree("out")
    assert main([*said[1:], "--quiet"]) == 0


def trained(capsys):
    """The settings of the printed command, which is run as a shell would."""
    command = capsys.readouterr().out.rpartition("Train on it:\n")[2].strip()
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True)
    words = said.stdout.decode().split("\0")[1:-1]
    assert main([*words, "--epochs", "0.2", "--lora-r", "2", "--device", "cpu", "--quiet"]) == 0
    return json.loads(Path("out-model/result.json").read_text("utf-8"))["settings"]


@pytest.mark.slow
def test_finetune_reads_what_curate_read(model, capsys):
    rows = [
        {"q": row["instruction"], "a": row["output"], "kind": row["source"] if place % 7 else None}
        for place, row in enumerate(POOL_ROWS)
    ]
    write("pool.jsonl", rows)
    write("wanted.jsonl", [{"q": row["instruction"], "a": row["output"]} for row in TARGET_ROWS])
    template = "It's {instruction}\n\tso \\n "
    words = ("--prompt", "q", "--answer", "a", "--source", "kind", "--max-length", "40")
    assert curate(model, *words, "--template", template, "--bf16", "--no-page") == 0
    settings = trained(capsys)
    expected = {"prompt": "q", "answer": "a", "max_length": 40, "template": template, "bf16": True}
    assert expected.items() <= settings.items()
    assert settings["source"] is None  # some of the chosen rows have none
    # Only what comes from somewhere is chosen: then finetune is told where from.
    write("pool.jsonl", [row for row in rows if row["kind"]])
    assert curate(model, *words, "--no-page") == 0
    assert "--source kind" in capsys.readouterr().out


@pytest.mark.slow
def test_copies_of_the_target_and_of_a_benchmark_are_dropped(model, capsys):
    skipped = {"instruction": "?", "output": ""}  # and yet rows keep their numbers in the file
    write("bench.jsonl", [skipped, POOL_ROWS[7]])
    write("wanted.jsonl", [skipped, *TARGET_ROWS, POOL_ROWS[3]])
    assert curate(model, "--exclude-near", "bench.jsonl", "1e-6", "--no-page") == 0
    with open("out/excluded.csv", encoding="utf-8") as file:
        listed = list(csv.DictReader(file))
    assert {("3", "wanted.jsonl", str(TARGET + 1)), ("7", "bench.jsonl", "1")} <= {
        (row["row"], row["file"], row["matched_row"]) for row in listed
    }
    rows = uniproto.Selection.load("out").indices
    assert not np.isin([int(row["row"]) for row in listed], rows).any()
    assert main(["verify", "out"]) == 0
    assert curate(model, "--keep-duplicates", "--no-page", k=POOL) == 0  # nothing is dropped
    assert not Path("out/excluded.csv").exists()


def test_what_repeats_a_benchmark_is_dropped_by_its_words(model, capsys):
    asked = {"instruction": f"Please solve: {POOL_ROWS[7]['instruction']}", "output": "no idea"}
    write("pool.jsonl", [*POOL_ROWS, asked, {**POOL_ROWS[2], "source": "again"}])
    write("bench.jsonl", [POOL_ROWS[7]])
    assert curate(model, "--benchmarks", "bench.jsonl", "--no-page", k=100) == 0
    assert "2 rows that repeat bench.jsonl, in excluded.csv" in capsys.readouterr().out
    with open("out/excluded.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    listed = {(row["row"], row["file"], row["rule"]) for row in rows}
    assert ("7", "bench.jsonl", "same question") in listed
    assert (str(POOL), "bench.jsonl", "same question") in listed
    assert (str(POOL + 1), "pool.jsonl", "same question and answer") in listed
    assert {row["matched_words"] for row in rows if row["row"] == str(POOL)} == {
        " ".join(re.findall(r"\d+", POOL_ROWS[7]["instruction"]))
    }
    assert not {7, POOL, POOL + 1} & set(uniproto.Selection.load("out").indices.tolist())
    assert main(["verify", "out"]) == 0


def test_too_few_rows_left_by_words_are_refused_before_a_model_looks(model, unloaded, capsys):
    copies = [{**row, "instruction": f"Solve: {row['instruction']}"} for row in POOL_ROWS]
    write("bench.jsonl", POOL_ROWS)
    write("pool.jsonl", copies)
    assert curate(model, "--benchmarks", "bench.jsonl", "--keep-duplicates") == 2
    told = capsys.readouterr().err
    assert "the 0 of 120 rows that may be chosen" in told
    assert "120 repeat bench.jsonl (same question, such as row 0: '" in told
    assert "leave out --benchmarks" in told
    with refused("k", UniprotoError):
        uniproto.lm.curate(
            copies, TARGET_ROWS, K, model=model, benchmarks=POOL_ROWS, min_distance=None
        )


def test_many_rows_that_are_dropped_are_a_warning_with_what_they_share(model):
    options = by_gradients(model)
    text = "9 + 8 + 7 + 6"
    again = [
        {"instruction": f"{text} {word}", "output": word}
        for word in ("a", "b", "c", "d", "e", "f", "g")
    ]
    with pytest.warns(
        DataWarning, match=r"% of the pool's rows .* for benchmarks. 7 share '9 8 7 6'"
    ):
        found = uniproto.lm.curate(
            [*POOL_ROWS, *again],
            TARGET_ROWS,
            K,
            benchmarks=[{"instruction": text, "output": "30"}],
            **options,
        )
    reasons = found.details.notes["dropped"]
    assert {reasons[row]["of"] for row in range(POOL, POOL + 7)} == {"benchmarks"}
    assert reasons[POOL] == {
        "rule": "same question", "of": "benchmarks", "row": 0, "words": "9 8 7 6"
    }  # fmt: skip


def test_limits_of_sources(model):
    words = ("--at-most", "source:mul=3", "--budget", "source:add=9", "--no-page")
    assert curate(model, *words) == 0
    kinds = [row["source"] for row in chosen()]
    assert kinds.count("mul") <= 3
    assert kinds.count("add") == 9


@pytest.mark.parametrize("ending", ["parquet", "csv", "saved", "jsonl.zst"])
def test_pools_of_other_forms(ending, model):
    table = pa.Table.from_pylist(POOL_ROWS)
    name = f"other.{ending}"
    if ending == "parquet":
        pq.write_table(table, name)
    elif ending == "csv":
        with open(name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(POOL_ROWS[0]))
            writer.writeheader()
            writer.writerows(POOL_ROWS)
    elif ending == "saved":  # as Dataset.save_to_disk writes it
        Path(name).mkdir()
        part = f"{name}/data-00000-of-00001.arrow"
        with pa.OSFile(part, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        Path(name, "state.json").write_text(json.dumps(state))
    else:
        with pa.output_stream(name, compression="zstd") as stream:
            stream.write(Path("pool.jsonl").read_bytes())
    assert curate(model, "--no-page", pool=name) == 0
    assert curate(model, "--no-page", out="plain") == 0
    assert chosen() == chosen("plain")
    assert main(["verify", "out"]) == 0


def test_numbers_that_json_does_not_have_are_missing(model):
    rows = [{**row, "score": np.nan, "more": [np.inf, 1.0]} for row in POOL_ROWS]
    odd = pa.array([[("loss", np.nan)]] * POOL, pa.map_(pa.string(), pa.float64()))
    pq.write_table(pa.Table.from_pylist(rows).append_column("odd", odd), "pool.parquet")
    assert curate(model, "--no-page", pool="pool.parquet") == 0
    assert all(row["odd"] == [["loss", None]] for row in chosen())
    assert {(row["score"], tuple(row["more"])) for row in chosen()} == {(None, (None, 1.0))}


@pytest.mark.slow
def test_rows_that_were_curated_before_keep_their_columns(model):
    pool, kept = "pool.jsonl", {}
    for out, k in (("first", 60), ("second", 40), ("third", K)):
        assert curate(model, "--no-page", pool=pool, k=k, out=out) == 0
        pool, found = f"{out}/{CHOSEN}", chosen(out)
        if kept:
            for row in found:  # all that the row had, and three columns more
                before = kept[row["instruction"], row["output"]]
                assert before.items() <= row.items()
                assert len(row) == len(before) + 3
        kept = {(row["instruction"], row["output"]): row for row in found}
    assert [row["rank_chosen_chosen"] for row in found] == list(range(1, K + 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, {"instruction": "1+1"}, {"prompt": "no", "completion": "never"}]
)
def test_a_target_with_usual_columns_of_its_own(more, model):
    """The pool's columns win where the target has them all; else those with usual names do."""
    assert curate(model, "--no-page", "--quiet", out="plain") == 0
    names = ("prompt", "completion") if not more else ("question", "answer")
    if "prompt" in more:
        write("pool.jsonl", [renamed(row, ("question", "answer")) for row in POOL_ROWS])
    wanted = [{**more, **renamed(row, names)} for row in TARGET_ROWS]
    write("wanted.jsonl", wanted)
    assert curate(model, "--quiet") == 0
    rows = uniproto.Selection.load("plain").indices
    np.testing.assert_array_equal(uniproto.Selection.load("out").indices, rows)
    assert main(["verify", "out"]) == 0
    assert TARGET_ROWS[0]["instruction"] in Path("out/report.html").read_text("utf-8")
    pool = [json.loads(line) for line in Path("pool.jsonl").read_text("utf-8").splitlines()]
    options = by_gradients(model)
    np.testing.assert_array_equal(uniproto.lm.curate(pool, wanted, K, **options).indices, rows)


def renamed(row, names):
    return dict(zip(names, (row["instruction"], row["output"]), strict=True))


@pytest.mark.slow
def test_hidden_states_and_sentences(model, monkeypatch):
    assert curate(model, "--hidden", "--no-page") == 0
    hidden = [row["rank"] for row in chosen()]
    assert len(hidden) == K
    assert main(["verify", "out"]) == 0
    assert curate(model, "--text", "instruction,output", "--no-page", out="texts") == 0
    assert len(chosen("texts")) == K
    assert main(["verify", "texts"]) == 0
    assert curate(model, "--text", "output,output", "--no-page", out="twice") == 0


@pytest.mark.slow
def test_plain_texts_are_compared_by_hidden_states_unless_told_otherwise(model, capsys):
    texts = {
        name: [{"text": f"{row['instruction']} is {row['output']}"} for row in rows]
        for name, rows in (("pool.jsonl", POOL_ROWS), ("wanted.jsonl", TARGET_ROWS))
    }
    for name, rows in texts.items():
        write(name, rows)
    words = ["curate", "pool.jsonl", "--target", "wanted.jsonl", "-k", str(K), "--model", model]
    assert main([*words, "--template", TEMPLATE, "--min-distance", "1e-6", "-o", "out"]) == 0
    assert "hidden states of the model" in capsys.readouterr().out
    assert main(["verify", "out"]) == 0
    assert curate(model, "--hidden", "--no-page", out="said") == 0
    assert chosen() == chosen("said")
    assert curate(model, "--gradients", "--no-page", out="gradients") == 0
    assert "gradients of the model" in capsys.readouterr().out
    assert chosen() != chosen("gradients")

    for options, out in (
        ({"model": model, "min_distance": 1e-6}, "out"),
        (by_gradients(model), "gradients"),
    ):
        found = uniproto.lm.curate(texts["pool.jsonl"], texts["wanted.jsonl"], K, **options)
        picks = [texts["pool.jsonl"][row]["text"] for row in found.indices]
        assert picks == [row["text"] for row in chosen(out)]


def test_rds_plus_is_hidden_states_by_position_taken_in_turn(model):
    options = {"model": model, "template": TEMPLATE, "pooling": "position"}
    found = uniproto.lm.curate(
        POOL_ROWS, TARGET_ROWS, K, features=uniproto.lm.HiddenStates(**options),
        method="nearest_in_turn", min_distance=None,
    )  # fmt: skip
    pool, target = (
        uniproto.lm.hidden_states(rows, **options).vectors for rows in (POOL_ROWS, TARGET_ROWS)
    )
    expected = uniproto.select(pool, K, target, metric="cosine", method="nearest_in_turn")
    np.testing.assert_array_equal(found.indices, expected.indices)


def test_what_an_instruction_is_about_belongs_to_the_prompt(model, capsys):
    """As in the data of Alpaca: instruction, input, output."""

    def apart(row):
        return {"instruction": "Compute.", "input": row["instruction"], "output": row["output"]}

    def joined(row):
        return {"instruction": f"Compute.\n\n{row['instruction']}", "output": row["output"]}

    write("pool.jsonl", [{**apart(row), "source": "sums"} for row in POOL_ROWS])
    write("wanted.jsonl", list(map(joined, TARGET_ROWS)))
    assert curate(model, "--no-page") == 0
    line = capsys.readouterr().out.strip().splitlines()[-1]
    write("joined.jsonl", list(map(joined, POOL_ROWS)))
    assert curate(model, "--no-page", pool="joined.jsonl", out="joined") == 0
    prompts = [row["instruction"] for row in chosen("joined")]
    assert [f"Compute.\n\n{row['input']}" for row in chosen()] == prompts
    assert main(["verify", "out"]) == 0

    from uniproto.lm.finetune.data import read_rows

    pq.write_table(pa.Table.from_pylist(chosen()), "chosen.parquet")
    for path in (Path("out", CHOSEN), "chosen.parquet"):
        assert [row.example[0] for row in read_rows(path, source="source")] == prompts
    assert "finetune" in line
    assert "--prompt" not in line


@pytest.mark.slow
def test_messages(model, tmp_path, capsys):
    folder = tiny_model(tmp_path / "chat", positions=64, spread=0.3)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    for name, rows in (("pool.jsonl", POOL_ROWS), ("wanted.jsonl", TARGET_ROWS)):
        pairs = [{"user": row["instruction"], "assistant": row["output"]} for row in rows]
        talks = [[{"role": who, "content": said} for who, said in each.items()] for each in pairs]
        write(name, [{"messages": talk} for talk in talks])
    assert curate(folder) == 0, capsys.readouterr().err
    assert chosen()[0]["messages"][1]["role"] == "assistant"
    assert trained(capsys)["messages"] is None  # by its usual name
    assert curate(model) == 2
    assert "no chat template of its own" in capsys.readouterr().err
    write("pool.jsonl", [{"messages": calling("add", **{n: 1})} for n in "abcdefghijklmn"])
    assert curate(folder, "--keep-duplicates", k=5, out="calls") == 0, capsys.readouterr().err
    written = [each["messages"][1]["tool_calls"][0] for each in chosen("calls")]
    assert {len(call["function"]["arguments"]) for call in written} == {1}
    assert main(["verify", "calls"]) == 0


@pytest.mark.slow
def test_a_name_of_the_hub_is_loaded_by_datasets(model, monkeypatch, capsys):
    class Saved:
        _fingerprint = "f00"

        def to_parquet(self, path):
            pq.write_table(pa.Table.from_pylist(POOL_ROWS), path)

    def load_dataset(name, configuration, split):
        assert (name, configuration, split) == ("owner/sums", None, "validation")
        return Saved()

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert curate(model, "--no-page", pool="owner/sums:validation") == 0
    assert curate(model, "--no-page", out="plain") == 0
    assert chosen() == chosen("plain")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert curate(model, pool="owner/others") == 2
    assert "pip install datasets" in capsys.readouterr().err


# --- bad input, before a model is loaded ----------------------------------------------------------


@pytest.fixture
def unloaded(monkeypatch, tmp_path):
    """No model may be loaded, and no vector is known."""
    monkeypatch.setenv("UNIPROTO_CACHE", str(tmp_path / "empty"))

    def refuse(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("uniproto.lm.features.language_features.load_model", refuse)


@pytest.mark.parametrize(
    ("rows", "words", "k", "message"),
    [
        ([{"frage": "1+1", "answer": "2"}], [], K, "wanted.jsonl: the examples have no prompt"),
        ([], [], K, "wanted.jsonl"),
        (TARGET_ROWS, [], POOL + 1, "-k must not exceed the rows of the pool"),
        (TARGET_ROWS, [], 0, "-k must be at least 1"),
        (TARGET_ROWS, ["--layer", "layers.7.v_proj"], K, "must name one linear"),
        (TARGET_ROWS, ["--adapter", "nowhere"], K, "nowhere: no adapter_config.json"),
        (TARGET_ROWS, ["--prompt", "q"], K, "Name them: --prompt and --answer"),
        (TARGET_ROWS, ["--text", "output", "--answer", "output"], K, "--answer needs --grad"),
        (TARGET_ROWS, ["--prompt", "output"], K, "--answer must be another column"),
        (TARGET_ROWS, ["--model", "."], K, ".: the model must be a model's folder"),
        (TARGET_ROWS, ["--at-most", "sauce:add=3"], K, "sauce"),
        (TARGET_ROWS, ["--at-least", "source:add=100"], K, "--at-least for source 'add'"),
        (TARGET_ROWS, ["--exclude-near", "wanted.jsonl", "near"], K, "such as FILE 0.05"),
        (TARGET_ROWS, ["--exclude-near", "wanted.jsonl", "-1"], K, "a distance of at least 0"),
        (TARGET_ROWS, ["--exclude-near", "gone.jsonl", "0.1"], K, "gone.jsonl: there is no such"),
        (TARGET_ROWS, ["--min-distance", "-1"], K, "--min-distance must be 'auto' or a"),
        (TARGET_ROWS, ["--seed", "-1"], K, "--seed must be at least 0"),
        (TARGET_ROWS, ["--memory", "lots"], K, "--memory must be an amount"),
        (TARGET_ROWS, ["--source", "sauce"], K, "--source must be one of"),
        (TARGET_ROWS, ["--method", "dsir"], K, "dsir counts words"),
        (TARGET_ROWS, ["--method", "fasterpam"], K, "--target must be the source itself"),
        (TARGET_ROWS, ["--method", "kmeans"], K, "must not exceed the"),
        ([*TARGET_ROWS, *[{"instruction": "1", "output": ""}] * K], ["--method", "kmeans"], K,
         "the 15 targets of positive weight"),
        (TARGET_ROWS, ["--method", "protodash", "--memory", "1KB"], K, "keeps k kernel rows"),
        ([{"instruction": "1", "output": ""}], [], K, "No row holds an example"),
        ([{"instruction": "1", "output": None}], [], K, "wanted.jsonl"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_first(rows, words, k, message, model, unloaded, capsys):
    write("wanted.jsonl", rows)
    assert curate(model, *words, k=k) == 2
    assert message in capsys.readouterr().err
    assert not Path("out").exists() or not any(Path("out").iterdir())


def test_without_a_language_model_the_printed_command_ends_where_its_name_goes(model, capsys):
    assert curate(model, "--text", "instruction,output", "--no-page") == 0
    command = capsys.readouterr().out.strip().rpartition("\n")[2]
    assert command.endswith("--out out-model --model")
    assert "MODEL" not in command


def test_a_folder_is_no_file_of_examples(model, unloaded, capsys):
    Path("folder").mkdir()
    shutil.copy("pool.jsonl", "folder")
    assert curate(model, pool="folder") == 2
    assert "folder is a folder without .parquet files" in capsys.readouterr().err
    Path("folder/one.png").touch()
    assert curate(model, target="folder") == 2
    assert "Pass --images" in capsys.readouterr().err


def test_conversations_that_are_texts_are_refused(model, unloaded, capsys):
    talk = json.dumps([{"role": "assistant", "content": "4"}])
    write("pool.jsonl", [{"messages": talk}] * POOL)
    for words in ((), ("--messages", "messages")):
        assert curate(model, *words) == 2
        assert "--messages must name a column of conversations" in capsys.readouterr().err


def test_a_distance_of_copies_that_are_kept_is_refused(model, unloaded, capsys):
    for distance in ("1e-6", "0"):
        assert curate(model, "--keep-duplicates", "--min-distance", distance) == 2
        assert "--min-distance excludes --keep-duplicates" in capsys.readouterr().err


def test_a_pool_of_copies_is_refused_first(model, unloaded, capsys):
    write("pool.jsonl", POOL_ROWS[:10] * 12)
    assert curate(model) == 2
    said = capsys.readouterr().err
    assert "no copies of each other or of the target" in said
    assert "--keep-duplicates" in said


@pytest.mark.parametrize("words", [[], ["--keep-duplicates"]])
def test_rows_without_an_answer_that_leave_too_few_are_counted_first(
    words, model, unloaded, capsys
):
    silent = [{**row, "output": " "} for row in POOL_ROWS[K - 1 :]]
    write("pool.jsonl", [*POOL_ROWS[: K - 1], *silent])
    assert curate(model, *words) == 2
    assert f"{K - 1} of {POOL} (got {K})" in capsys.readouterr().err


def test_no_model_and_other_people_s_files(model, capsys):
    assert curate(None) == 2
    assert "--gradients needs --model" in capsys.readouterr().err
    Path("out").mkdir()
    Path("out", CHOSEN).write_text("mine")
    assert curate(model) == 2
    assert CHOSEN in capsys.readouterr().err
    assert Path("out", CHOSEN).read_text() == "mine"


# --- Python ---------------------------------------------------------------------------------------


def test_in_python(model):
    options = by_gradients(model)
    selection = uniproto.lm.curate(POOL_ROWS, TARGET_ROWS, K, **options)
    assert curate(model, "--no-page", "--quiet") == 0
    np.testing.assert_array_equal(selection.indices, uniproto.Selection.load("out").indices)
    table = pa.Table.from_pylist(POOL_ROWS)
    same = uniproto.lm.curate(table, pa.Table.from_pylist(TARGET_ROWS), K, **options)
    np.testing.assert_array_equal(same.indices, selection.indices)


def test_the_command_and_the_call_write_the_same_files(model, capsys):
    write("bench.jsonl", [POOL_ROWS[7]])
    write("more.jsonl", [POOL_ROWS[9]])
    near = ("--exclude-near", "more.jsonl", "1e-6", "--benchmarks", "bench.jsonl")
    assert curate(model, *near, "--no-page", "--quiet") == 0
    asked = {"benchmarks": ["bench.jsonl"], "exclude_near": ("more.jsonl", 1e-6)}
    found = uniproto.lm.curate("pool.jsonl", "wanted.jsonl", K, **by_gradients(model), **asked)
    found.save("call")
    for name in ("selection.parquet", "prototypes.parquet", "excluded.csv"):
        assert Path("out", name).read_bytes() == Path("call", name).read_bytes()
    records = (json.loads(Path(folder, "manifest.json").read_text()) for folder in ("out", "call"))
    one, other = records
    assert one["excluded"] == other["excluded"]
    assert one["arguments"] == other["arguments"]
    assert main(["verify", "call"]) == 0, capsys.readouterr().out


class Streamed:
    """As an `IterableDataset` is: rows, and no way to ask for one of them."""

    def with_format(self, kind):
        raise AssertionError("rows of a stream have no format")

    def __getitem__(self, column):
        raise AssertionError("columns of a stream are streams")

    def __iter__(self):
        return iter(POOL_ROWS)


def test_files_streams_splits_and_whole_numbers_in_python(model):
    options = by_gradients(model)
    rows = uniproto.lm.curate(POOL_ROWS, TARGET_ROWS, K, **options).indices
    numbers = [{**row, "output": int(row["output"])} for row in POOL_ROWS]
    mixed = [*numbers[:9], *POOL_ROWS[9:]]
    write("mixed.jsonl", mixed)
    Path("mixed.json").write_text(json.dumps(mixed), encoding="utf-8")
    for pool in ("pool.jsonl", Path("pool.jsonl"), Streamed(), numbers, mixed, "mixed.jsonl",
                 "mixed.json"):  # fmt: skip
        found = uniproto.lm.curate(pool, "wanted.jsonl", K, **options)
        np.testing.assert_array_equal(found.indices, rows)
    with refused("pool", UniprotoError):
        uniproto.lm.curate({"train": Streamed(), "test": Streamed()}, TARGET_ROWS, K, **options)


def test_a_loaded_model(model):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = {"min_distance": 1e-6}
    rows = uniproto.lm.curate(POOL_ROWS, TARGET_ROWS, K, model=model, **options).indices
    loaded, tokenizer = (
        each.from_pretrained(model) for each in (AutoModelForCausalLM, AutoTokenizer)
    )
    question = {"model": loaded, "tokenizer": tokenizer, **options}
    found = uniproto.lm.curate(POOL_ROWS, TARGET_ROWS, K, **question)
    np.testing.assert_array_equal(found.indices, rows)
    with pytest.raises(UniprotoError) as caught:
        uniproto.lm.curate(POOL_ROWS, TARGET_ROWS, K, **{**question, "tokenizer": None})
    assert caught.value.parameter == "tokenizer"


def test_a_stream_of_several_parts_is_one_table(model, monkeypatch):
    monkeypatch.setattr("uniproto.lm.curation.rows._STREAMED_AT_ONCE", 50)
    options = by_gradients(model)
    rows = uniproto.lm.curate(POOL_ROWS, TARGET_ROWS, K, **options).indices
    found = uniproto.lm.curate(iter(POOL_ROWS), iter(TARGET_ROWS), K, **options)
    np.testing.assert_array_equal(found.indices, rows)


def test_questions_of_a_benchmark_in_other_words_are_dropped(model, monkeypatch, capsys):
    # Vectors of a sentence: its words but the usual ones.
    def vectors(texts, **options):
        usual, found = {"please", "tell", "me"}, []
        for text in texts:
            row = np.zeros(64)
            row[[int(sha256_text(word), 16) % 64 for word in set(text.split()) - usual]] = 1
            found.append(row / np.linalg.norm(row))
        return np.array(found)

    def sha256_text(word):
        return hashlib.sha256(word.encode()).hexdigest()

    monkeypatch.setattr("uniproto.lm.curation.meaning.sentence_vectors", vectors)
    monkeypatch.setattr("uniproto.lm.curation.curate.sentence_vectors", vectors)
    asked = {"instruction": "how many legs do seven spiders and two cats have", "output": "64"}
    said = "have two cats and seven spiders how many legs please do tell me"
    pool = [*POOL_ROWS, {"source": "leak", "instruction": said, "output": "64"}]
    options = by_gradients(model)
    options |= {"benchmarks": [asked]}
    words = uniproto.lm.curate(pool, TARGET_ROWS, K, **options).details.notes["dropped"]
    assert POOL not in words
    both = uniproto.lm.curate(pool, TARGET_ROWS, K, decontaminate="words+meaning", **options)
    expected = {"rule": "same meaning", "of": "benchmarks", "row": 0, "words": said}
    assert both.details.notes["dropped"][POOL] == expected
    write("leaky.jsonl", pool)
    write("benchmark.jsonl", [asked])
    given = ("--benchmarks", "benchmark.jsonl", "--decontaminate", "words+meaning")
    assert curate(model, *given, pool="leaky.jsonl") == 0, capsys.readouterr().err
    with Path("out/excluded.csv").open(newline="", encoding="utf-8") as file:
        (row,) = [row for row in csv.DictReader(file) if row["rule"] == "same meaning"]
    assert (row["row"], row["matched_row"], row["matched_words"]) == (str(POOL), "0", said)
    page = Path("out/report.html").read_text("utf-8")
    assert "same meaning" in page
    assert said in page.partition('id="excluded"')[2]
    assert curate(model, *given[2:], out="other") == 2
    assert "--decontaminate" in capsys.readouterr().err


def test_pictures_in_a_conversation_are_refused_by_name(model, unloaded):
    parts = [{"type": "image", "text": ""}, {"type": "text", "text": "What is it?"}]
    talk = [{"role": "user", "content": parts}, {"role": "assistant", "content": parts}]
    with pytest.raises(UniprotoError, match="images; only texts are read"):
        uniproto.lm.curate([{"messages": talk}] * POOL, [{"messages": talk}], K, model=model)
    talk[1]["content"] = "A cat."
    with refused("pool", UniprotoError):
        uniproto.lm.curate([{"messages": talk}] * POOL, [{"messages": talk}], K, model=model)
    write("talks.jsonl", [{"messages": talk}] * POOL)
    with pytest.raises(UniprotoError, match="Images in conversations are not supported"):
        uniproto.lm.curate("talks.jsonl", "talks.jsonl", K, model=model)


def calling(tool, **arguments):
    """A conversation in which a model calls a tool and reads its result."""
    call = {"type": "function", "function": {"name": tool, "arguments": arguments}}
    return [
        {"role": "user", "content": "What do you know about it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "Four."},
    ]


def test_tool_calls_are_read_as_they_are_written(tmp_path):
    from transformers import AutoTokenizer

    from uniproto.lm.curation.repeats import repeats
    from uniproto.lm.curation.rows import read_rows
    from uniproto.lm.features.examples import read_examples
    from uniproto.lm.features.tokens import encoded

    tokenizer = AutoTokenizer.from_pretrained(tiny_model(tmp_path / "chat"))
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]"
        "{% for call in m.tool_calls %}{{ call.function | tojson }}{% endfor %}{{ m.content }}"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    talks = [calling("add", a=1, b=3), calling("find", city="Rome"), calling("find", city="Lima")]
    rows = [{"messages": talk} for talk in talks]
    write("talks.jsonl", rows)
    reader = uniproto.lm.Gradients("model")
    for read in (reader.items(read_rows(rows, "pool", reader)), read_examples("talks.jsonl")):
        first, *_ = encoded(list(read), tokenizer, TEMPLATE, 512)
        learned = tokenizer.decode(first.tokens[first.learned == 1])
        assert learned == '{"name": "add", "arguments": {"a": 1, "b": 3}}Four.'
        assert repeats(read, itself=True) == [[]]  # they differ in their calls
    tokenizer.chat_template = "{{ raise_exception('no tools here') }}"
    with pytest.raises(UniprotoError, match=r"refuses \(no tools here") as caught:
        list(encoded(talks, tokenizer, TEMPLATE, 512))
    assert caught.value.parameter == "messages"


def test_public_names_can_be_completed():
    assert {"curate", "gradients", "hidden_states", "BatchSelector"} <= set(dir(uniproto.lm))


def test_rows_without_an_answer_keep_the_numbers_of_the_others(model):
    rows = [{"source": "add", "instruction": "?", "output": ""}, *POOL_ROWS]
    options = by_gradients(model)
    shifted = uniproto.lm.curate(rows, TARGET_ROWS, K, **options)
    plain = uniproto.lm.curate(POOL_ROWS, TARGET_ROWS, K, **options)
    np.testing.assert_array_equal(shifted.indices, plain.indices + 1)


def test_sources_benchmarks_and_copies_in_python(model):
    wanted = [*TARGET_ROWS, {n: POOL_ROWS[3][n] for n in ("instruction", "output")}]
    selection = uniproto.lm.curate(
        POOL_ROWS, wanted, K, **by_gradients(model),
        limits=Limits("source", at_least={"sub": 10}), exclude_near=([POOL_ROWS[7]], 1e-6),
    )  # fmt: skip
    kinds = [POOL_ROWS[row]["source"] for row in selection.indices]
    assert kinds.count("sub") >= 10
    dropped = selection.details.notes["dropped"]
    assert dropped[3]["of"], dropped[7]["of"] == ("target", "exclude_near")
    assert dropped[3]["row"] == TARGET
    assert not {3, 7} & set(selection.indices.tolist())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": []}, "'target' must be a"),
        ({"pool": [1, 2]}, "'pool' must be a"),
        ({"model": None, "features": "vibes"}, "'features' must be lm.Gradients"),
        ({"features": Text("output")}, "'model' excludes 'features'"),
        ({"model": None}, "'model' must be given, or how rows are compared"),
        ({"limits": Limits("sauce", at_most=3)}, "sauce"),
        ({"limits": Limits(["a"], at_most=3)}, "'limits' must"),
        ({"model": None, "features": Text("body")}, "'text' must be one of"),
        ({"limits": Limits("source", at_most=1)}, "'at_most' must allow k=24 rows"),
        ({"source": "source"}, "'source' is no parameter"),
        ({"modle": "m"}, "Did you mean 'model'"),
        ({"min_distance": -1}, "'min_distance' must be"),
        ({"decontaminate": "words+meaning"}, "needs 'benchmarks'"),
        ({"tokenizer": "a"}, "'tokenizer' is for a loaded model only"),
        ({"pool": [{"frage": "1"}] * POOL}, "Name them: prompt= and answer=, or messages="),
        ({"exclude_near": (TARGET_ROWS, -1)}, "a distance of at least 0"),
        ({"pool": [*POOL_ROWS, {"instruction": "1"}]}, r"pool: .* row 120 \(answer: missing"),
        ({"target": [{"instruction": "1", "output": ""}]}, "target: No row holds"),
        ({"pool": POOL_ROWS[:10] * 12}, "no copies of each other .* min_distance=None"),
    ],
)
def test_python_says_what_is_wrong(options, message, model, unloaded):
    question = {"pool": POOL_ROWS, "target": TARGET_ROWS, "k": K, "model": model, **options}
    with pytest.raises(UniprotoError, match=message):
        uniproto.lm.curate(**question)
