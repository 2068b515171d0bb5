"""Export of a pretrained model as a `LlamaForCausalLM` of transformers.

The architecture is the same: RMSNorm, rotary positions on the halves of each head, grouped queries,
SwiGLU. The layout differs: here matrices are transposed, queries, keys and values are fused, gate
and up are fused, and layers are stacked. Before the folder gets its name, its logits are compared
with those of the model.
"""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InputFileError, OutputError, UniprotoError, needing
from uniproto.lm.pretraining.checkpoints import Checkpoints
from uniproto.lm.pretraining.model import ModelConfig, Params, logits
from uniproto.lm.pretraining.pretrain import SETTINGS, TOKENS, padded_model
from uniproto.lm.pretraining.pretrain_settings import StepSettings
from uniproto.lm.pretraining.step import initial_state
from uniproto.lm.pretraining.tokens import TOKENIZER, load_tokens, load_vocabulary
from uniproto.runs.atomic import unwritable, write_json

FORMATS = ("hf",)
_CLOSE = 1e-3  # of the largest logit: the libraries sum in different orders
_COMPARED_TOKENS = 64


def export_run(out: Path, folder: Path, tokens: Path | None = None) -> dict[str, Any]:
    """Write the model of a pretraining run as a folder of transformers.

    The newest checkpoint is exported, whether the run is finished or not. `tokens` is the folder of
    its tokens, if they are not in the run's own. Returns its step, and the largest difference of a
    logit between the two libraries.
    """
    if not (out / SETTINGS).is_file():
        raise InputFileError(
            f"{out}: no pretraining run here (no {SETTINGS}). Name the folder of a run with --out."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"{folder}: there are files here. Choose another folder for the model.")
    prepared = load_tokens(out / TOKENS if tokens is None else tokens)
    checkpoints = Checkpoints(out)
    try:
        saved = checkpoints.latest()
        if saved is None:
            raise InputFileError(f"{out}: the run has no checkpoint. Train first.")
        settings = saved.record["configuration"]
        if settings["tokens"] != prepared.identity():
            raise InputFileError(
                f"{prepared.folder}: these are not the tokens of the run. Name their folder with "
                "--tokens."
            )
        config = padded_model(settings["size"], prepared.vocab, settings["length"])
        shared = {each.name: settings[each.name] for each in fields(StepSettings)}
        shared["sketch"] = tuple(shared["sketch"])
        like = initial_state(config, StepSettings(**shared), seed=0)
        params = checkpoints.restore(saved, like).params
    finally:
        checkpoints.close()
    return {"step": saved.step, "difference": export_params(params, config, folder, prepared)}


def export_params(params: Params, config: ModelConfig, folder: Path, prepared: Any) -> float:
    """Write parameters as a folder of transformers; returns the largest difference of a score."""
    with needing("Exporting a model", "train"):
        import safetensors.numpy
    end = int(prepared.header["end_of_text"])
    end_text = load_vocabulary(prepared.folder).tokenizer.id_to_token(end)
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a command that was killed
        partial.mkdir(parents=True)
        safetensors.numpy.save_file(
            llama_weights(params, config), partial / "model.safetensors", metadata={"format": "pt"}
        )
        write_json(partial / "config.json", llama_config(config, end))
        write_json(partial / "generation_config.json", {"eos_token_id": end, "pad_token_id": end})
        shutil.copyfile(prepared.folder / TOKENIZER, partial / TOKENIZER)
        names = {"eos_token": end_text, "pad_token": end_text, "model_max_length": config.length}
        names["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_json(partial / "tokenizer_config.json", names)
        difference = compare_with_transformers(params, config, partial)
        if folder.exists():
            folder.rmdir()  # an empty one
        partial.rename(folder)
    except OSError as error:
        raise unwritable(folder, error, "the model") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return difference


def llama_config(config: ModelConfig, end: int) -> dict[str, Any]:
    """What transformers calls the shape of the model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "max_position_embeddings": config.length,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": end,
        "dtype": "float32",
    }


def llama_weights(params: Params, config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """The parameters under the names and in the layout of `LlamaForCausalLM`."""
    found = {
        "model.embed_tokens.weight": params["embedding"],
        "model.norm.weight": params["final_norm"],
        "lm_head.weight": params["head"].T,
    }
    ends = [config.heads * config.head_width, (config.heads + config.kv_heads) * config.head_width]
    for number in range(config.layers):
        layer = {name: values[number] for name, values in params["layers"].items()}
        queries, keys, values = jnp.split(layer["qkv"], ends, axis=1)
        gate, up = jnp.split(layer["gate_up"], 2, axis=1)
        names = {
            "input_layernorm": layer["attention_norm"],
            "self_attn.q_proj": queries.T,
            "self_attn.k_proj": keys.T,
            "self_attn.v_proj": values.T,
            "self_attn.o_proj": layer["attention_out"].T,
            "post_attention_layernorm": layer["mlp_norm"],
            "mlp.gate_proj": gate.T,
            "mlp.up_proj": up.T,
            "mlp.down_proj": layer["down"].T,
        }
        found |= {f"model.layers.{number}.{name}.weight": each for name, each in names.items()}
    return {name: np.ascontiguousarray(jax.device_get(each)) for name, each in found.items()}


def compare_with_transformers(params: Params, config: ModelConfig, folder: Path) -> float:
    """The largest difference between two libraries' scores of the same random tokens."""
    with needing("Exporting a model", "train"):
        import torch
        import transformers
    length = min(config.length, _COMPARED_TOKENS)
    tokens = np.random.default_rng(0).integers(0, config.vocab, (2, length))
    ours = np.asarray(logits(params, jnp.asarray(tokens), config, dtype=jnp.float32))
    transformers.utils.logging.disable_progress_bar()  # progress of loading files
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32
    ).eval()
    with torch.no_grad():
        theirs = model(torch.from_numpy(tokens)).logits.numpy()
    difference = float(np.abs(ours - theirs).max())
    if not difference <= _CLOSE * max(1.0, float(np.abs(ours).max())):
        raise UniprotoError(
            f"The scores of the exported model differ by {difference:.2g}. The export was not "
            "kept; please report this."
        )
    return difference
