"""What several tests of judging need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Models as small as those of tests only wait for a second thread."""
    torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model from a small configuration, with a tokenizer of single characters."""
    torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
    transformers = pytest.importorskip("transformers", reason="needs the extra 'judge'")
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra 'judge'")
    folder = tmp_path_factory.mktemp("model")
    words = ["<pad>", "<s>", "</s>", "<unk>", "\n", *(chr(n) for n in range(32, 127))]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(folder)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(words),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=256,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            initializer_range=0.5,  # far from ties: batches round differently
        )
    ).save_pretrained(folder)
    return folder
