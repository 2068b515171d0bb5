"""Per-example gradients in one pass are those of a loop of single-example backward passes."""

import os
from pathlib import Path

import peft
import pytest
import torch
import transformers
from tests.refusals import refused

from uniproto.errors import InvalidInputError
from uniproto.lm.features import gradient_features
from uniproto.lm.features import losses as losses_module
from uniproto.lm.features.layers import value_projection
from uniproto.lm.finetune.run import CHECKPOINTING

features_of = gradient_features.gradient_features

_DATA = Path(
    os.environ.get("UNIPROTO_DATA") or Path(__file__).resolve().parents[4] / "shared" / "data"
)
_SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 64}
# name → (configuration class, its settings, the layers LoRA adapts)
ARCHITECTURES = {
    "llama": ("LlamaConfig", _GROUPED, ["q_proj", "v_proj"]),
    "mistral": ("MistralConfig", _GROUPED, ["v_proj", "o_proj"]),
    "qwen2": ("Qwen2Config", _GROUPED, ["v_proj", "k_proj"]),
    "gemma2": ("Gemma2Config", {**_GROUPED, "head_dim": 8}, ["v_proj"]),
    "phi": ("PhiConfig", {**_SMALL, "resid_pdrop": 0.1}, ["q_proj", "v_proj", "fc1"]),
    "phi3": ("Phi3Config", _GROUPED, ["qkv_proj"]),
    "stablelm": ("StableLmConfig", _GROUPED, ["q_proj", "k_proj", "v_proj", "o_proj"]),
    "gpt2": ("GPT2Config", {**_GPT2, "bos_token_id": 1, "eos_token_id": 2}, ["c_attn"]),
    "gpt_neox": ("GPTNeoXConfig", _SMALL, ["query_key_value"]),
    "falcon": (
        "FalconConfig",
        {**_SMALL, "num_kv_heads": 2, "new_decoder_architecture": True},
        ["query_key_value"],
    ),
    "cohere": ("CohereConfig", {**_GROUPED, "logit_scale": 0.25}, ["v_proj"]),
}


def build(name, lora=False, dtype=torch.float64, dropout=0.0, **settings):
    kind, defaults, adapted = ARCHITECTURES[name]
    torch.manual_seed(5)
    config = getattr(transformers, kind)(**{**defaults, **settings})
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # wider than an initialisation, so that nothing is nearly linear
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.2)
    if lora:
        settings = peft.LoraConfig(
            r=3,
            lora_alpha=7,  # no power of two: rounding is exercised too
            lora_dropout=dropout,
            target_modules=adapted,
            fan_in_fan_out=name == "gpt2",
            init_lora_weights=False,  # B is random, as after some steps
            task_type="CAUSAL_LM",
        )
        model = peft.get_peft_model(model, settings)
    return model.to(dtype).train()


def make_batch(examples=5, tokens=19, padding="right", seed=0, vocabulary=64):
    """Texts of several lengths; the first part of each is a question, without labels."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocabulary, (examples, tokens), generator=generator)
    mask = torch.ones_like(ids)
    labels = ids.clone()
    for row in range(examples):
        missing = row % 4
        question = 1 + row % 3
        if padding == "right":
            pad = slice(tokens - missing, tokens)
            labels[row, :question] = -100
        else:
            pad = slice(0, missing)
            labels[row, : missing + question] = -100
        ids[row, pad], mask[row, pad], labels[row, pad] = 0, 0, -100
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    if padding == "left":
        batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return batch


def by_loop(model, batch, parts):
    """The loss of each example alone, and its backward pass.

    In single precision the model's own loss; it rounds to single precision, so that in double
    precision it is taken from the model's logits.
    """
    training = model.training
    flags = [parameter.requires_grad for parameter in model.parameters()]
    model.eval()
    for parameter in (part.parameter for part in parts):
        parameter.requires_grad_(True)
    rows, losses = [], []
    for row in range(len(batch["labels"])):
        model.zero_grad()
        example = {key: value[row : row + 1] for key, value in batch.items()}
        output = model(**example)
        loss = output.loss
        if output.logits.dtype == torch.float64:
            targets = example["labels"][0, 1:]
            loss = torch.nn.functional.cross_entropy(output.logits[0, :-1], targets)
        loss.backward()
        grads = [part.parameter.grad[part.index].reshape(-1) for part in parts]
        rows.append(torch.cat(grads).clone())
        losses.append(loss.detach())
    model.zero_grad()
    model.train(training)
    for parameter, flag in zip(model.parameters(), flags, strict=True):
        parameter.requires_grad_(flag)
    return torch.stack(rows), torch.stack(losses)


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "plain"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_one_pass_equals_a_loop_of_backward_passes(name, lora, padding):
    # Gemma's mask of a position that sees nothing overflows in double precision.
    dtype = torch.float32 if name == "gemma2" else torch.float64
    model = build(name, lora=lora, dropout=0.3, dtype=dtype)
    batch = make_batch(padding=padding)
    if name == "falcon":
        batch.pop("position_ids", None)
    parts = value_projection(model).parts()
    expected, losses = by_loop(model, batch, parts)
    found = features_of(model, batch)
    assert found.features.shape == expected.shape
    assert found.usable.all()
    assert expected.abs().max() > 1e-3
    assert torch.allclose(found.losses, losses, rtol=1e-12 if dtype == torch.float64 else 1e-6)
    error = (found.features - expected).abs().max() / expected.abs().max()
    # A comparison that could not fail would show here: a thousandth more is seen as such.
    assert not torch.allclose(1.001 * found.features, expected, rtol=1e-5)
    assert error < (1e-12 if dtype == torch.float64 else 5e-6), error


@pytest.mark.parametrize("name", ["phi3", "gpt2", "gpt_neox", "falcon"])
def test_the_rows_of_a_fused_layer_are_its_values(name):
    """Values do not enter the attention weights; queries and keys do."""
    settings = {"alibi": True} if name == "falcon" else {}
    model = build(name, attn_implementation="eager", **settings).eval()
    batch = make_batch(examples=2)
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask")}
    (part,) = value_projection(model).parts()
    before = model(**inputs, output_attentions=True)
    weight = part.parameter.detach().clone()
    with torch.no_grad():
        part.parameter[part.index] += torch.randn_like(weight[part.index])
    values_moved = model(**inputs, output_attentions=True)
    assert torch.equal(values_moved.attentions[-1], before.attentions[-1])
    assert not torch.allclose(values_moved.logits, before.logits)
    with torch.no_grad():
        part.parameter.add_(torch.randn_like(weight))
        part.parameter[part.index] = weight[part.index]
    others_moved = model(**inputs, output_attentions=True)
    assert not torch.allclose(others_moved.attentions[-1], before.attentions[-1])
    share = weight[part.index].numel() / weight.numel()
    heads, kept = (4, 2) if name in ("phi3", "falcon") else (4, 4)
    assert share == kept / (heads + 2 * kept)


def test_micro_batches_and_small_pieces_of_logits_change_nothing(monkeypatch):
    model, batch = build("llama", lora=True), make_batch(examples=7)
    whole = features_of(model, batch)
    monkeypatch.setattr(losses_module, "_LOGITS_AT_ONCE", 4 * 64 * 3)  # three tokens
    pieces = features_of(model, batch, score_batch_size=3)
    assert torch.allclose(pieces.features, whole.features)
    assert torch.allclose(pieces.losses, whole.losses)


def test_a_pool_that_is_mostly_padding_is_scored_by_length(monkeypatch):
    model, batch = build("llama", lora=True), make_batch(examples=40, tokens=12)
    for row, length in enumerate([12, *(3 + (7 * number) % 4 for number in range(39))]):
        batch["attention_mask"][row] = 0
        batch["attention_mask"][row, :length] = 1
        batch["labels"][row, length:] = -100
    whole = features_of(model, batch, score_batch_size=40)
    shapes = []
    seen = losses_module.before_the_head
    monkeypatch.setattr(
        losses_module,
        "before_the_head",
        lambda model, inputs: (
            shapes.append(tuple(inputs["input_ids"].shape)) or seen(model, inputs)
        ),
    )
    sorted_ones = features_of(model, batch)
    assert len(shapes) == 3
    assert shapes[0][1] < 12
    assert shapes[-1] == (8, 12)
    assert torch.allclose(sorted_ones.features, whole.features, equal_nan=True)
    assert torch.allclose(sorted_ones.losses, whole.losses, equal_nan=True)


def test_only_the_end_of_the_model_has_a_graph():
    model, batch = build("llama", lora=True), make_batch()
    features_of(model, batch)  # which compares one loss with the model's own, once
    graphs = []
    layers = model.get_base_model().model.layers
    for layer in layers:
        layer.register_forward_hook(lambda *seen: graphs.append(seen[2].requires_grad))
    features_of(model, batch)
    assert graphs == [False, True]


def test_a_layer_named_by_hand():
    model, batch = build("llama", lora=True), make_batch()
    first = "model.layers.0.self_attn.v_proj"
    projection = value_projection(model, first)
    assert projection.name == f"base_model.model.{first}"
    expected, _ = by_loop(model, batch, projection.parts())
    assert torch.allclose(features_of(model, batch, layer=first).features, expected)
    mlp = "layers.1.mlp.down_proj"
    expected, _ = by_loop(model, batch, value_projection(model, mlp).parts())
    assert torch.allclose(features_of(model, batch, layer=mlp).features, expected)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("layers.1.self_attn.value", ["must name one", "down_proj"]),
        ("self_attn.v_proj", ["Several layers", "layers.0.self_attn.v_proj"]),
        ("", ["layer"]),
    ],
)
def test_a_name_of_no_layer(layer, words):
    with pytest.raises(InvalidInputError) as caught:
        features_of(build("llama"), make_batch(), layer=layer)
    assert all(word in str(caught.value) for word in words)


def test_a_model_without_a_value_projection_lists_its_layers():
    model = build("llama")
    attention = model.model.layers[1].self_attn
    attention.worth = attention.v_proj
    del attention.v_proj
    with pytest.raises(InvalidInputError, match="value projection") as caught:
        features_of(model, make_batch())
    assert "layer='model.layers.1.self_attn.q_proj'" in str(caught.value)
    assert "model.layers.1.self_attn.worth" in str(caught.value)


def test_models_that_are_refused():
    with pytest.raises(InvalidInputError, match="output head"):
        features_of(build("llama").model, make_batch())
    t5 = transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=64, d_model=16, d_ff=16, num_layers=1, num_heads=2)
    )
    with pytest.raises(InvalidInputError, match="decoder only"):
        features_of(t5, make_batch(), layer="decoder.block.0.layer.0.SelfAttention.v")
    dora = peft.LoraConfig(r=2, target_modules=["v_proj"], use_dora=True)
    with pytest.raises(InvalidInputError, match="plain LoRA"):
        features_of(peft.get_peft_model(build("llama"), dora), make_batch())
    merged = build("llama", lora=True)
    merged.merge_adapter()
    with pytest.raises(InvalidInputError, match="unmerge_adapter"):
        features_of(merged, make_batch())


def test_labels_of_another_shape_are_refused():
    batch = {**make_batch(), "labels": torch.zeros(5, 4, dtype=torch.long)}
    with pytest.raises(InvalidInputError, match="one shape"):
        features_of(build("llama"), batch)


def test_columns_the_model_does_not_know_are_left_alone():
    model, batch = build("llama", lora=True), make_batch()
    more = {**batch, "source": ["a", "b", "a", "b", "c"], "index": torch.arange(5)}
    assert torch.equal(features_of(model, more).features, features_of(model, batch).features)


def test_examples_without_a_finite_loss_are_marked_and_spoil_no_others():
    model, batch = build("llama", lora=True), make_batch()
    batch["input_ids"][1, 0] = 63
    batch["input_ids"][:1][batch["input_ids"][:1] == 63] = 62
    batch["input_ids"][2:][batch["input_ids"][2:] == 63] = 62
    batch["labels"][3] = -100  # nothing to learn: a mean over nothing
    clean = features_of(model, batch)
    assert clean.usable.tolist() == [True, True, True, False, True]
    with torch.no_grad():
        model.get_input_embeddings().weight[63] = torch.nan
    found = features_of(model, batch)
    assert found.usable.tolist() == [True, False, True, False, True]
    assert found.features[[1, 3]].isnan().all()
    assert torch.equal(found.features[[0, 2, 4]], clean.features[[0, 2, 4]])


def test_bfloat16_models_give_single_precision_features():
    model, batch = build("phi3", lora=True), make_batch(examples=6)
    exact = features_of(model, batch).features
    found = features_of(model.to(torch.bfloat16), batch)
    assert found.features.dtype == torch.float32
    assert found.losses.dtype == torch.float32
    cosine = torch.nn.functional.cosine_similarity(found.features.double(), exact)
    assert cosine.min() > 0.99


def test_under_autocast():
    model, batch = build("llama", lora=True, dtype=torch.float32), make_batch()
    exact = features_of(model, batch).features
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = features_of(model, batch).features
        loss = model(**batch).loss
    assert not torch.equal(found, exact)
    assert torch.nn.functional.cosine_similarity(found, exact).min() > 0.99
    loss.backward()  # weights cast while scoring are not kept: every LoRA weight has a gradient
    trained = [each for each in model.parameters() if each.requires_grad]
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in trained)


@pytest.mark.parametrize("lora", [True, False])
def test_projection_keeps_inner_products(lora):
    model, batch = build("llama", lora=lora), make_batch(examples=6)
    whole = features_of(model, batch).features
    gram = whole @ whole.T
    drawn = []
    for seed in range(200):
        narrow = features_of(model, batch, width=40, seed=seed).features if seed < 3 else None
        again = gradient_features.projected(whole, 40, seed)
        if narrow is not None:
            assert narrow.shape == (6, 40)
            assert torch.allclose(narrow, again)
        drawn.append(again @ again.T)
    norms = whole.norm(dim=1)
    error = (torch.stack(drawn).mean(0) - gram) / (norms[:, None] * norms)
    assert error.abs().max() < 4 * (2 / 40 / 200) ** 0.5
    assert torch.equal(features_of(model, batch, width=10**6).features, whole)
    with refused("width", InvalidInputError):
        features_of(model, batch, width=0)


def test_projection_some_examples_at_a_time(monkeypatch):
    model, batch = build("llama"), make_batch(examples=6)
    once = features_of(model, batch, width=16).features
    monkeypatch.setattr(gradient_features, "_GRADIENTS_AT_ONCE", 4 * 32 * 16 * 2)
    assert torch.allclose(features_of(model, batch, width=16).features, once)


def test_gradient_checkpointing_and_input_gradients():
    model, batch = build("llama", lora=True), make_batch()
    expected = features_of(model, batch).features
    getattr(model, f"{CHECKPOINTING}_enable")({"use_reentrant": True})
    model.enable_input_require_grads()
    assert torch.equal(features_of(model, batch).features, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own compiler
def test_wrapped_and_compiled_models():
    model, batch = build("llama", lora=True), make_batch()
    expected = features_of(model, batch).features
    assert torch.equal(features_of(torch.compile(model), batch).features, expected)
    assert torch.equal(features_of(torch.nn.DataParallel(model), batch).features, expected)
    with torch.inference_mode():
        assert torch.equal(features_of(model, batch).features, expected)
    with torch.no_grad():
        assert torch.equal(features_of(model, batch).features, expected)
        assert not torch.is_grad_enabled()


def test_tied_embeddings():
    model = build("llama", lora=True, tie_word_embeddings=True)
    batch = make_batch()
    expected, _ = by_loop(model, batch, value_projection(model).parts())
    assert torch.allclose(features_of(model, batch).features, expected)


def test_losses_alone_need_no_gradient():
    model, batch = build("gpt2"), make_batch()
    losses = losses_module.example_losses(model, batch, score_batch_size=2)
    assert torch.allclose(losses, features_of(model, batch).losses)
    with refused("score_batch_size", InvalidInputError):
        losses_module.example_losses(model, batch, score_batch_size=0)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [True, False])
def test_on_real_weights(lora):
    folder = _DATA / "models" / "stories260k"
    if not folder.is_dir():
        pytest.skip("no stories260k: set UNIPROTO_DATA to the folder of data")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if lora:
        torch.manual_seed(0)
        config = peft.LoraConfig(r=4, target_modules=["v_proj"], init_lora_weights=False)
        model = peft.get_peft_model(model, config).double()
    texts = ["Once upon a time, there was a cat.", "Tom ran.", "The sun was red and warm today."]
    rows = [torch.tensor(tokenizer(text)["input_ids"]) for text in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
    mask = (ids != -100).long()
    batch = {"input_ids": ids.clamp(min=0), "attention_mask": mask, "labels": ids}
    expected, losses = by_loop(model, batch, value_projection(model).parts())
    found = features_of(model, batch)
    assert torch.allclose(found.losses, losses, rtol=1e-5)
    assert lora or found.losses.mean() < 5  # it has learned to write: log 512 = 6.2
    error = (found.features - expected).abs().max() / expected.abs().max()
    assert error < 1e-12
