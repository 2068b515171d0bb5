"""Token files: nothing of a corpus is lost, splits and batches depend on the seed alone."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from uniproto.errors import InputFileError, InvalidInputError, OutputError
from uniproto.lm.pretraining.preparation import (
    TokenPreparation,
    held_out,
    prepare_tokens,
)
from uniproto.lm.pretraining.tokens import (
    END_OF_TEXT,
    TRAIN,
    VALIDATION,
    Sequences,
    batch_numbers,
    learn_vocabulary,
    load_tokens,
    load_vocabulary,
    read_ahead,
)

WORDS = ["the", "cat", "sat", "on", "a", "mat", "while", "rain", "fell", "and", "日本", "ünï"]


def documents(count=200):
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, draw.integers(5, 60))) for _ in range(count)]
    texts[7] += f" {END_OF_TEXT} goes on"  # a text does not end where it only says so
    return texts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents()))
    return path


def prepared(folder, corpus, **options):
    return prepare_tokens(folder, TokenPreparation(data=str(corpus), **options), 0, shown=False)


def read_back(tokens, part):
    """The documents of a file of tokens."""
    stream = tokens.sequences(part, 1).tokens
    end = tokens.header["end_of_text"]
    assert stream[-1] == end
    ends = np.flatnonzero(stream == end)
    vocabulary = load_vocabulary(tokens.folder)
    starts = [0, *(ends[:-1] + 1)]
    return [
        vocabulary.decode(stream[a:b].tolist()) for a, b in zip(starts, ends.tolist(), strict=True)
    ]


def test_every_document_comes_back_once(corpus, tmp_path):
    tokens = prepared(tmp_path, corpus)
    train, held = read_back(tokens, TRAIN), read_back(tokens, VALIDATION)
    assert sorted(train + held) == sorted(documents())
    assert len(held) == tokens.header["validation_documents"] == 10
    assert tokens.header["dtype"] == "uint16"
    assert load_vocabulary(tmp_path).size == tokens.vocab < 32_000
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tokens.json", TRAIN, VALIDATION} | {
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_the_same_corpus_gives_the_same_bytes(corpus, tmp_path):
    for name in ("a", "b"):
        prepared(tmp_path / name, corpus)
    for name in (TRAIN, VALIDATION, "tokenizer.json", "tokens.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_complete_folder_is_used_and_its_options_are_checked(corpus, tmp_path):
    made = prepared(tmp_path, corpus, vocab_size=300)
    before = (tmp_path / "tokens.json").stat().st_mtime_ns
    assert prepared(tmp_path, corpus).header == made.header
    assert prepare_tokens(tmp_path, TokenPreparation()).header == made.header
    assert prepare_tokens(tmp_path, TokenPreparation(vocab_size=300)).header == made.header
    assert (tmp_path / "tokens.json").stat().st_mtime_ns == before
    with pytest.raises(InvalidInputError, match="vocab_size = 300 in the folder, 400 now"):
        prepare_tokens(tmp_path, TokenPreparation(vocab_size=400))
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "something else"}\n')
    with pytest.raises(InvalidInputError, match=r"corpus = .*--tokens"):
        prepared(tmp_path, other)


def test_folders_that_are_not_complete_are_told(corpus, tmp_path):
    with pytest.raises(InputFileError, match="--data"):
        prepare_tokens(tmp_path / "none", TokenPreparation())
    prepared(tmp_path, corpus)
    (tmp_path / TRAIN).write_bytes(b"short")
    with pytest.raises(InputFileError, match="another size than"):
        load_tokens(tmp_path)


def test_a_large_vocabulary_takes_four_bytes(corpus, tmp_path):
    names = [END_OF_TEXT, *WORDS, *(f"word{n}" for n in range(70_000))]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="the")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(tmp_path / "large.json"))
    tokens = prepared(tmp_path / "tokens", corpus, tokenizer=str(tmp_path / "large.json"))
    assert tokens.header["dtype"] == "uint32"
    assert tokens.vocab == len(names)
    assert "cat sat" in " ".join(read_back(tokens, TRAIN))


def test_a_tokenizer_without_an_end_is_refused(tmp_path):
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "fin": 1}, unk_token="a"))
    inner.save(str(tmp_path / "tokenizer.json"))
    with refused("tokenizer", InvalidInputError):
        load_vocabulary(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "fin"}}')
    assert load_vocabulary(tmp_path).end == 1
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputFileError, match="could not be read"):
        load_vocabulary(tmp_path)
    with pytest.raises(InputFileError, match="No such file"):
        load_vocabulary(tmp_path / "none")


@pytest.mark.parametrize("size", [100, 0])
def test_a_vocabulary_too_small_for_bytes_is_refused(corpus, tmp_path, size):
    with refused("vocab_size", InvalidInputError):
        prepared(tmp_path, corpus, vocab_size=size)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.text(max_size=200))
def test_every_text_can_be_written_and_read(text):
    assert VOCABULARY.decode(VOCABULARY.encode([text])[0]) == text


VOCABULARY = learn_vocabulary(lambda: iter(documents()), 320)


@given(st.floats(0.01, 0.5), st.integers(0, 99), st.integers(1, 400))
def test_the_share_held_out_is_kept_everywhere(share, seed, count):
    draws = held_out(share, seed)
    held = np.array([next(draws) for _ in range(count)])
    assert abs(held.sum() - share * count) <= 1.01 + share
    again = held_out(share, seed)
    assert [next(again) for _ in range(count)] == held.tolist()


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5))
def test_an_epoch_sees_every_sequence_once(count, size, seed):
    steps = -(-2 * count // size)
    seen = np.concatenate([batch_numbers(step, size, count, seed) for step in range(steps)])
    for epoch in range(2):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_sequences_predict_every_token_once(tmp_path):
    np.arange(32, dtype=np.uint16).tofile(tmp_path / "a.bin")
    sequences = Sequences(tmp_path / "a.bin", np.dtype(np.uint16), 10)
    assert len(sequences) == 3
    found = sequences.read(np.arange(3))
    assert found.dtype == np.int32
    assert found[:, 1:].ravel().tolist() == list(range(1, 31))
    assert found[:, 0].tolist() == [0, 10, 20]
    (tmp_path / "b.bin").write_bytes(b"")
    assert len(Sequences(tmp_path / "b.bin", np.dtype(np.uint16), 10)) == 0


def test_reading_ahead_gives_the_batches_in_order(tmp_path):
    np.arange(101, dtype=np.uint16).tofile(tmp_path / "a.bin")
    sequences = Sequences(tmp_path / "a.bin", np.dtype(np.uint16), 10)
    found = list(read_ahead(sequences, range(3, 9), 4, seed=1))
    assert len(found) == 6
    for step, batch in zip(range(3, 9), found, strict=True):
        expected = sequences.read(batch_numbers(step, 4, len(sequences), 1))
        np.testing.assert_array_equal(batch, expected)


_SLOW = """
import sys, time
from uniproto.lm.pretraining import preparation as made
real = made.read_documents
def slowly(*given):
    for document in real(*given):
        if len(sys.argv) > 3: time.sleep(0.005)
        yield document
made.read_documents = slowly
made._AT_ONCE = 2000
made.prepare_tokens(sys.argv[1], made.TokenPreparation(data=sys.argv[2]), 0, False)
"""


def _some_tokens_written(folder):
    """Whether a file not yet complete holds something; one may be renamed while we look."""
    for path in folder.glob(".uniproto-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size:
                return True
    return False


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_while_preparing_leaves_nothing_that_looks_complete(corpus, tmp_path):
    whole = prepared(tmp_path / "whole", corpus)
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", _SLOW, str(folder), str(corpus)]
    running = subprocess.Popen([*command, "slowly"])
    deadline = time.monotonic() + 60
    learned_file = folder / "tokenizer.json"
    while not (learned_file.exists() and _some_tokens_written(folder)):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    with pytest.raises(InputFileError, match="--data"):
        load_tokens(folder)
    learned = learned_file.stat().st_mtime_ns
    assert prepared(folder, corpus).header == whole.header
    assert not list(folder.glob(".uniproto-*"))  # what the kill left is gone
    assert (folder / TRAIN).read_bytes() == (tmp_path / "whole" / TRAIN).read_bytes()
    assert learned_file.stat().st_mtime_ns == learned  # it is not learned twice


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["few.jsonl", "small.txt"])
def test_a_small_corpus_has_both_parts(tmp_path, name, seed):
    words = [" ".join(str(number * place) for number in range(200)) for place in range(5)]
    text = (
        "\n".join(words)
        if name.endswith("txt")
        else "".join(json.dumps({"text": each}) + "\n" for each in words)
    )
    (tmp_path / name).write_text(text)
    asked = TokenPreparation(data=str(tmp_path / name))
    tokens = prepare_tokens(tmp_path / "tokens", asked, seed, shown=False)
    assert tokens.header["validation_tokens"] > 0
    assert tokens.header["train_tokens"] > tokens.header["validation_tokens"]


def test_own_tokens_may_be_made_anew(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join("alpha beta gamma" for _ in range(500)))
    first = TokenPreparation(data=str(tmp_path / "a.txt"))
    other = TokenPreparation(data=str(tmp_path / "a.txt"), validation=0.3)
    prepare_tokens(tmp_path / "tokens", first, shown=False)
    with pytest.raises(InvalidInputError, match=r"validation = 0\.05 in the folder, 0\.3 now"):
        prepare_tokens(tmp_path / "tokens", other, shown=False)
    again = prepare_tokens(tmp_path / "tokens", other, shown=False, replace=True)
    assert again.header["validation"] == 0.3


def damaged_corpus(folder, corpus):
    lines = corpus.read_text().splitlines(keepends=True)
    (folder / "damaged.jsonl").write_text("".join([*lines[:150], "{\n", *lines[150:]]))
    return folder / "damaged.jsonl"


@pytest.mark.parametrize("data", ["missing.txt", "damaged.jsonl"])
@pytest.mark.parametrize("options", [{}, {"column": "nowhere"}, {"tokenizer": "whole"}])
def test_refused_preparations_leave_nothing(corpus, tmp_path, data, options):
    damaged_corpus(tmp_path, corpus)
    if "tokenizer" in options:
        prepared(tmp_path / "whole", corpus)
        options = {"tokenizer": str(tmp_path / "whole")}
    there = set(tmp_path.iterdir())
    with pytest.raises((InputFileError, InvalidInputError)):
        prepared(tmp_path / "run" / "tokens", tmp_path / data, **options)
    assert set(tmp_path.iterdir()) == there


def test_refused_preparations_keep_what_was_there(corpus, tmp_path):
    folder = tmp_path / "tokens"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputFileError, match="no such file"):
        prepared(folder, tmp_path / "missing.txt")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    header = prepared(folder, corpus).header
    there = set(folder.iterdir())
    with pytest.raises(InputFileError, match="no such file"):
        prepared(folder, tmp_path / "missing.txt")
    assert set(folder.iterdir()) == there
    assert load_tokens(folder).header == header


@pytest.mark.parametrize("name", [TRAIN, "tokenizer.json", "tokenizer_config.json"])
def test_files_of_somebody_else_are_not_overwritten(corpus, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="must be new, or made by this command"):
        prepared(tmp_path, corpus)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}
