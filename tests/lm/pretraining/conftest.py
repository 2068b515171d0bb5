"""Tests of pretraining compile much and compute little: half the time without optimisation."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from tests.lm.pretraining.tiny import WORDS, words

# Read when JAX starts its first device; programs that tests start inherit it.
_QUICK_COMPILATION = "--xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK_COMPILATION}".strip()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    draw = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    texts = [" ".join(draw.choice(WORDS, draw.integers(5, 60))) for _ in range(200)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@pytest.fixture(scope="session")
def tokens(corpus, tmp_path_factory):
    from uniproto.cli import main

    folder = tmp_path_factory.mktemp("tokens")
    asked = ("--data", str(corpus), "--tokens", str(folder), "-o", str(folder / "run"), "--quiet")
    assert main(["pretrain", *asked, "--prepare-only"]) == 0
    return folder


@pytest.fixture(scope="session")
def whole(tokens, tmp_path_factory):
    """A run of 12 steps without interruption."""
    from uniproto.cli import main

    out = tmp_path_factory.mktemp("whole")
    assert main(words(tokens, out, "--steps", "12")) == 0
    return out
