"""Published data sets: every format they come in, and a clear word where they are missing."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.datasets import DATASETS, load_dataset
from support.published import Dataset, read_cifar
from uniproto import InputFileError

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNIPROTO_DATA", raising=False)


def assert_sound(data: Dataset) -> None:
    for rows, labels in ((data.train, data.train_labels), (data.test, data.test_labels)):
        assert rows.ndim == 2
        assert rows.dtype in (np.uint8, np.float32)
        assert labels.dtype == np.int64
        assert len(rows) == len(labels) > 0
        assert labels.min() >= 0
        if data.class_names is not None:
            assert labels.max() < len(data.class_names)
        if data.picture_shape is not None:
            assert rows.shape[1] == np.prod(data.picture_shape)
        if data.feature_names is not None:
            assert rows.shape[1] == len(data.feature_names)
    assert data.train.shape[1] == data.test.shape[1]


# The whole, where it is at hand


REAL = {
    "mnist": (60_000, 10_000, 784, 10),
    "cifar10": (5_000, 1_000, 3_072, 10),
    "cifar10-features": (50_000, 10_000, 128, 10),
    "usps": (7_291, 2_007, 256, 10),
    "letter": (16_000, 4_000, 16, 26),
    "adult": (32_561, 16_281, 108, 2),
    "credit": (24_000, 6_000, 33, 2),
}
_FOLDER = Path(
    os.environ.get("UNIPROTO_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
)


@pytest.mark.parametrize("name", REAL)
def test_real_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not _FOLDER.is_dir():
        pytest.skip("no folder of data: set UNIPROTO_DATA to one")
    monkeypatch.setenv("UNIPROTO_DATA", str(_FOLDER))
    try:
        data = load_dataset(name)
    except InputFileError as error:
        if "must be on this machine" not in str(error):
            raise
        pytest.skip(str(error))
    assert_sound(data)
    train, test, width, classes = REAL[name]
    if name != "cifar10" or "not the whole" in data.note:  # the whole of it may be at hand, too
        assert (len(data.train), len(data.test)) == (train, test)
    assert data.train.shape[1] == width
    assert data.class_names is not None
    assert len(np.unique(data.train_labels)) == len(data.class_names) == classes
    assert ("not the whole" in data.note) == (len(data.train) == 5_000)
    if name == "usps":
        assert data.train.min() == 0
        assert data.train.max() == 1


def test_digits_need_no_file() -> None:
    data = load_dataset("digits")
    assert_sound(data)
    assert len(data.train) + len(data.test) == 1797
    assert data.train.max() == 16
    assert "our split" in data.note
    assert load_dataset("digits", "/nowhere").train.shape == data.train.shape


# MNIST and its kin


def idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, *, dot: str = "-", zipped: bool = True) -> list[np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = []
    for part, count in (("train", 6), ("t10k", 4)):
        for what, kind, shape in (("images", 3, (count, 28, 28)), ("labels", 1, (count,))):
            array = RNG.integers(0, 256 if kind == 3 else 10, shape).astype(np.uint8)
            name = f"{part}-{what}{dot}idx{kind}-ubyte"
            content = idx(array)
            (folder / f"{name}{'.gz' if zipped else ''}").write_bytes(
                gzip.compress(content) if zipped else content
            )
            arrays.append(array)
    return arrays


@pytest.mark.parametrize(
    ("name", "inner", "dot", "zipped"),
    [
        ("mnist", "", "-", True),
        ("mnist", "MNIST/raw", "-", False),
        ("mnist", "mnist", ".", False),
        ("fashion-mnist", "FashionMNIST/raw", "-", True),
        ("fashion-mnist", "fashion", "-", True),
    ],
)
def test_idx_files(tmp_path: Path, name: str, inner: str, dot: str, zipped: bool) -> None:
    arrays = write_idx(tmp_path / inner, dot=dot, zipped=zipped)
    data = load_dataset(name, tmp_path)
    assert_sound(data)
    np.testing.assert_array_equal(data.train.reshape(-1, 28, 28), arrays[0])
    np.testing.assert_array_equal(data.train_labels, arrays[1])
    np.testing.assert_array_equal(data.test.reshape(-1, 28, 28), arrays[2])
    np.testing.assert_array_equal(data.test_labels, arrays[3])
    assert "not the whole data set: 6 + 4 rows of the published 60,000 + 10,000" in data.note
    first = next(file for file in sorted((tmp_path / inner).iterdir()) if "train-im" in file.name)
    np.testing.assert_array_equal(load_dataset(name, first).train, data.train)


def test_keras_archives(tmp_path: Path) -> None:
    rows = RNG.integers(0, 256, (5, 28, 28)).astype(np.uint8)
    arrays = {"x_train": rows, "y_train": np.arange(5), "x_test": rows, "y_test": np.arange(5)}
    np.savez(tmp_path / "fashion_mnist.npz", **arrays)
    np.savez(tmp_path / "any name.npz", **arrays)
    data = load_dataset("fashion-mnist", tmp_path)
    assert_sound(data)
    assert data.class_names is not None
    assert data.class_names[9] == "ankle boot"
    np.testing.assert_array_equal(
        load_dataset("mnist", tmp_path / "any name.npz").train, data.train
    )


# CIFAR


def cifar_parts(hundred: bool) -> dict[str, dict[bytes, Any]]:
    key = b"fine_labels" if hundred else b"labels"
    classes = 100 if hundred else 10
    names = (
        ("train", "test") if hundred else (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
    )
    parts: dict[str, dict[bytes, Any]] = {
        name: {
            b"data": RNG.integers(0, 256, (3, 3072)).astype(np.uint8),
            key: RNG.integers(0, classes, 3).tolist(),
            b"filenames": [b"a.png"] * 3,
        }
        for name in names
    }
    meta = b"fine_label_names" if hundred else b"label_names"
    parts["meta" if hundred else "batches.meta"] = {
        meta: [f"kind {number}".encode() for number in range(classes)]
    }
    return parts


def write_cifar(
    folder: Path, parts: dict[str, Any], inner: str, protocol: int, archive: bool
) -> Path:
    (folder / inner).mkdir(parents=True)
    for name, content in parts.items():
        (folder / inner / name).write_bytes(pickle.dumps(content, protocol))
    if not archive:
        return folder / inner
    file = folder / f"{inner.replace('batches-py', 'python')}.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(folder / inner, inner)
    for left in (folder / inner).iterdir():
        left.unlink()
    (folder / inner).rmdir()
    return file


@pytest.mark.parametrize("hundred", [False, True])
@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("protocol", [0, 2, 3, 4])
def test_cifar_archives_and_folders(
    tmp_path: Path, hundred: bool, archive: bool, protocol: int
) -> None:
    inner = "cifar-100-python" if hundred else "cifar-10-batches-py"
    parts = cifar_parts(hundred)
    place = write_cifar(tmp_path, parts, inner, protocol, archive)
    name = "cifar100" if hundred else "cifar10"
    data = load_dataset(name, tmp_path)
    assert_sound(data)
    np.testing.assert_array_equal(load_dataset(name, place).train, data.train)
    assert data.class_names is not None
    assert data.class_names[3] == "kind 3"
    assert data.picture_shape == (32, 32, 3)
    first = next(iter(parts.values()))
    raw = first[b"data"][1]
    picture = data.train[1].reshape(data.picture_shape)
    for colour in range(3):  # the raw rows hold one colour after the other
        np.testing.assert_array_equal(
            picture[:, :, colour], raw[1024 * colour : 1024 * (colour + 1)].reshape(32, 32)
        )
    assert data.train_labels[:3].tolist() == first[b"fine_labels" if hundred else b"labels"]


class Payload:
    """Unpickling this makes a folder."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(
    "content",
    [
        {b"data": Payload()},
        {b"data": np.array([Payload()], object)},
        {b"data": np.ones((3, 3072))},
        {b"data": {1, 2}, b"x": eval},
        [1, 2],
        {b"labels": [1]},
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_forged_pickles_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    parts: dict[str, Any] = {**cifar_parts(False), "data_batch_3": content}
    write_cifar(tmp_path, parts, "cifar-10-batches-py", protocol, archive=False)
    with pytest.raises(InputFileError, match="cifar-10-batches-py: the file must hold"):
        load_dataset("cifar10", tmp_path)
    assert not Path("ran").exists()


def test_python_2_pickles(tmp_path: Path) -> None:
    """Byte for byte the form of the published files, which need care in newer NumPy."""
    pixels = bytes(range(256)) * 12
    old = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
        b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01"
        b"\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        + pixels
        + b"tbU\x06labelsq\x08]q\x09K\x05au."
    )
    (tmp_path / "train").write_bytes(old)
    part, extra = read_cifar(tmp_path, "", ("train",), "meta")
    assert part["data"].shape == (1, 3072)
    assert part["data"].tobytes() == pixels
    assert part["labels"] == [5]
    assert extra == {}


# USPS, Letter, Adult, Credit


def test_usps_of_libsvm(tmp_path: Path) -> None:
    values = RNG.uniform(-1, 1, (4, 256)).astype(np.float32)
    lines = [
        f"{label} " + " ".join(f"{place + 1}:{value:.6f}" for place, value in enumerate(row))
        for label, row in zip((1, 7, 10, 3), values, strict=True)
    ]
    for name, part in (("usps.bz2", lines[:3]), ("usps.t.bz2", lines[3:])):
        (tmp_path / name).write_bytes(bz2.compress("\n".join(part).encode()))
    data = load_dataset("usps", tmp_path)
    assert_sound(data)
    assert data.train_labels.tolist() == [0, 6, 9]
    assert data.test_labels.tolist() == [2]
    np.testing.assert_allclose(data.train, (values[:3] + 1) / 2, atol=1e-6)
    np.testing.assert_array_equal(load_dataset("usps", tmp_path / "usps.bz2").test, data.test)


def test_letter_of_uci(tmp_path: Path) -> None:
    text = "\n".join(f"{letter},{','.join(['7'] * 15)},{i}" for i, letter in enumerate("TIDNG"))
    (tmp_path / "letter-recognition.data").write_text(text)
    data = load_dataset("letter", tmp_path)
    assert_sound(data)
    assert data.train_labels.tolist() == [19, 8, 3, 13]
    assert data.test_labels.tolist() == [6]
    assert data.train[:, 15].tolist() == [0, 1, 2, 3]


ADULT = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K
50, ?, 83311, Bachelors, 13, Married, Exec-managerial, Husband, White, Male, 0, 0, 13, United-States, >50K
38, Private, 215646, HS-grad, 9, Divorced, Handlers, Not-in-family, White, Female, 0, 0, 40, United-States, <=50K

"""  # noqa: E501


def write_adult(folder: Path) -> None:
    (folder / "adult.data").write_text(ADULT)
    changed = ADULT.replace("K\n", "K.\n").replace("Private", "Never-worked")
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + changed)


def test_adult_of_uci(tmp_path: Path) -> None:
    write_adult(tmp_path)
    data = load_dataset("adult", tmp_path)
    assert_sound(data)
    assert data.train_labels.tolist() == data.test_labels.tolist() == [0, 1, 0]
    assert data.feature_names is not None
    assert not any("50K" in name for name in data.feature_names)
    place = {name: data.train[:, i] for i, name in enumerate(data.feature_names)}
    ages = np.array([39, 50, 38])
    np.testing.assert_allclose(place["age"], (ages - ages.mean()) / ages.std(), rtol=1e-6)
    assert place["workclass=?"].tolist() == [0, 1, 0]
    assert place["workclass=Private"].tolist() == [0, 0, 1]
    assert place["capital_loss"].tolist() == [0, 0, 0]  # constant: nothing to scale
    of_test = data.test[:, [name.startswith("workclass=") for name in data.feature_names]]
    assert of_test.sum(axis=1).tolist() == [1, 1, 0]  # a value that training has not seen


@pytest.mark.parametrize("headers", [1, 2])
def test_credit_with_one_or_two_lines_of_names(tmp_path: Path, headers: int) -> None:
    names = [",".join(["ID", *(f"C{i}" for i in range(23)), "default payment next month"])]
    names = [",".join(["", *(f"X{i}" for i in range(1, 24)), "Y"]), *names][-headers:]
    lines = [
        ",".join(map(str, [i, 1000 * i, 1 + i % 2, 2, i % 3, 20 + i, *[-1] * 18, i % 2]))
        for i in range(1, 11)
    ]
    (tmp_path / "UCI_Credit_Card.csv").write_text("\n".join([*names, *lines]))
    data = load_dataset("credit", tmp_path)
    assert_sound(data)
    assert (len(data.train), len(data.test)) == (8, 2)
    assert data.feature_names is not None
    assert data.feature_names[:3] == ("LIMIT_BAL", "SEX=1", "SEX=2")
    # Nor is the row's number, which goes with the limit here, a feature of its own.
    assert sum(name == "LIMIT_BAL" or name == "ID" for name in data.feature_names) == 1
    sex = np.concatenate([data.train[:, 2], data.test[:, 2]])
    labels = np.concatenate([data.train_labels, data.test_labels])
    np.testing.assert_array_equal(sex, labels)
    again = load_dataset("credit", tmp_path / "UCI_Credit_Card.csv")
    np.testing.assert_array_equal(again.test, data.test)


# What is missing or damaged


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits"}))
def test_what_is_missing_is_told_with_its_home(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some file.txt").write_text("x")
    for path in (None, tmp_path, tmp_path / "nowhere", tmp_path / "some file.txt"):
        with pytest.raises(InputFileError) as caught:
            load_dataset(name, path)
        message = str(caught.value)
        assert f"The data set {name!r} must be on this machine" in message
        assert "https://" in message
        assert "UNIPROTO_DATA" in message
        assert path is None or str(path) in message
    monkeypatch.setenv("UNIPROTO_DATA", str(tmp_path))
    with pytest.raises(InputFileError, match=str(tmp_path)):
        load_dataset(name)


def _write_npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


ROWS = np.zeros((3, 28, 28), np.uint8)
FULL = {"x_train": ROWS, "y_train": np.arange(3), "x_test": ROWS, "y_test": np.arange(3)}


def zipped(content: bytes) -> bytes:
    """Without the time of day, which would be in the test's name."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("name", "file", "content", "said"),
    [
        ("mnist", "mnist.npz", b"PK\x03\x04 cut", "could not be read"),
        ("mnist", "mnist.npz", _write_npz(x_train=ROWS), "x_train, y_train, x_test, y_test"),
        ("mnist", "mnist.npz", _write_npz(**FULL | {"y_train": np.arange(2)}), "2 labels"),
        ("mnist", "mnist.npz", _write_npz(**FULL | {"x_test": ROWS[:, :9]}), "784 features"),
        ("cifar10", "cifar-10-python.tar.gz", b"\x1f\x8b cut", "could not be read"),
        ("letter", "letter-recognition.data", b"T,2,8\n", "3 values in line 1"),
        ("letter", "letter-recognition.data", b"T" + b",1" * 15 + b",x", "16 whole numbers"),
        ("credit", "credit_default.csv", b"ID,a\n1,2\n", "2 values in line 1"),
        ("credit", "credit_default.csv", b"1" + b",2" * 24, "labels must be from 0 to 1"),
        ("adult", "adult.csv.gz", zipped(b",".join([b"a"] * 16)), "income and split"),
        ("usps", "usps.npz", _write_npz(**FULL), "256 features"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, file: str, content: bytes, said: str) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        load_dataset(name, tmp_path)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / file))
    assert said in message
