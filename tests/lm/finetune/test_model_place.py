"""Finding a model: paths are never asked for on the hub, names a single time."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub as hub
import pytest

from uniproto.errors import InputFileError
from uniproto.features.models import find_model
from uniproto.lm.models import load_model, place_of


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """What a hub that has no model at all is asked for models."""
    paths: list[str] = []

    class NoModel(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/api/models/") or "resolve" in self.path:
                paths.append(self.path)
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoModel)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    yield paths
    server.shutdown()
    server.server_close()
    hub.utils.close_session()


@pytest.mark.parametrize(
    "name", ["./model", "/no/model", "~/no-model", "a/b/c", "owner/modle", "model.gguf", r"a\b"]
)
def test_what_looks_like_a_path_is_not_asked_for(name: str, asked: list[str]) -> None:
    Path("owner").mkdir()
    with pytest.raises(InputFileError, match="There is no such folder or file"):
        load_model(name)
    assert asked == []


@pytest.mark.parametrize("name", ["gpt0", "nobody/gpt0"])
def test_a_name_is_asked_for_once(name: str, asked: list[str]) -> None:
    with pytest.raises(InputFileError, match=r"was not downloaded .*hf download"):
        load_model(name)
    assert asked == [f"/api/models/{name}"]


def test_without_a_network_the_cache_will_do(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = Path("cache", "models--nobody--gpt0", "snapshots", "0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    assert find_model("nobody/gpt0") == snapshot.resolve()
    assert find_model("nobody/gpt0", download=False) == snapshot.resolve()
    with pytest.raises(InputFileError, match="Connection refused"):
        find_model("nobody/gpt1")


def test_a_gguf_file_is_opened_in_its_folder(asked: list[str]) -> None:
    Path("models").mkdir()
    Path("models", "tiny.gguf").touch()
    place = place_of("models/tiny.gguf")
    assert (place["pretrained_model_name_or_path"], place["gguf_file"]) == ("models", "tiny.gguf")
    assert asked == []
