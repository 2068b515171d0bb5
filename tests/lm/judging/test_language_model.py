"""Real models: batches give what single prompts give, and adapters find their way home."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from tests.refusals import refused

from uniproto.errors import InputFileError, InvalidInputError
from uniproto.features import cache as cache_module
from uniproto.lm.features.language import TEMPLATE
from uniproto.lm.features.tokens import encoded_chat
from uniproto.lm.finetune.folder import ModelPlace, locate
from uniproto.lm.judging import evaluate, language_model
from uniproto.lm.judging.language_model import (
    Batches,
    LanguageModel,
    load_language_model,
)

pytestmark = pytest.mark.usefixtures("one_thread")
STORIES = Path(__file__).resolve().parents[4] / "shared" / "data" / "models" / "stories260k"
PROMPTS = [
    "Once upon a time",
    "The big dog ran to the park and",
    "A",
    "One day, Tom saw a bird. " * 6,
    "Lily",
]


@pytest.fixture(scope="module")
def folder(tiny_model: Path) -> Path:
    return tiny_model


def load(place: Path | ModelPlace, **options: Any) -> LanguageModel:
    place = locate(place) if isinstance(place, Path) else place
    options = {"batch_size": 3, "max_new_tokens": 24, "log": lambda line: None} | options
    return load_language_model(place, device="cpu", **options)


def greedy(model: LanguageModel, prompt: str, tokens: int) -> tuple[str, bool]:
    """One token at a time, without a cache, a batch or padding."""
    ids = model.tokenizer(prompt)["input_ids"]
    ids = ids[:-1] if ids[-1] == model.tokenizer.eos_token_id else ids
    new: list[int] = []
    for _ in range(tokens):
        with torch.no_grad():
            token = int(model.model(torch.tensor([ids + new])).logits[0, -1].argmax())
        if token == model.tokenizer.eos_token_id:
            return model.tokenizer.decode(new, skip_special_tokens=True), True
        new.append(token)
    return model.tokenizer.decode(new, skip_special_tokens=True), False


@pytest.mark.parametrize("first_round", [5, 256])
def test_batches_write_what_single_prompts_do(
    folder: Path, first_round: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_model, "FIRST_ROUND", first_round)
    model = load(folder)
    for prompt, found in zip(PROMPTS, model.generate(PROMPTS), strict=True):
        text, ended = greedy(model, prompt, 24)
        assert found.text == text
        assert found.stopped == ("end" if ended else "length")


@pytest.mark.slow
@pytest.mark.skipif(not STORIES.is_dir(), reason="the model stories260k is not here")
def test_a_trained_model_stops_where_it_should() -> None:
    model = load(STORIES, max_new_tokens=40, stops=["Lily", "never written"])
    found = model.generate(PROMPTS)
    for prompt, each in zip(PROMPTS, found, strict=True):
        text, ended = greedy(model, prompt, 40)
        stopped = "Lily" in text
        assert each.text == text.partition("Lily")[0]
        assert each.stopped == ("end" if ended or stopped else "length")
    assert {each.stopped for each in found} == {"end", "length"}
    assert "Lily" not in found[0].text
    words = [("girl", "boy", "elephant")]
    [scores] = model.label_scores(["Once upon a time, there was a little"], words)
    assert scores[0] > scores[1] > scores[2]


def test_a_prompt_longer_than_the_context_loses_its_beginning(folder: Path) -> None:
    model = load(folder, max_new_tokens=2048)
    long = "abc" * 200
    short, cut = model.generate(["Tom", long])
    assert cut.stopped in ("end", "length")
    room = 256 // 4
    assert len(cut.text) <= room
    assert len(short.text) <= 256 - len("Tom")
    kept = model.tokenizer(long)["input_ids"][-(256 - room) :]
    assert cut.text[:5] == _continue(model, kept, 5)[: len(cut.text[:5])]


def _continue(model: LanguageModel, ids: list[int], tokens: int) -> str:
    made = model.model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
        generation_config=transformers.GenerationConfig(
            max_new_tokens=tokens, do_sample=False, pad_token_id=0, eos_token_id=2
        ),
    )
    return str(model.tokenizer.decode(made[0, len(ids) :], skip_special_tokens=True))


def test_label_scores_are_the_sum_over_the_words_tokens(folder: Path) -> None:
    model = load(folder, batch_size=2)
    words = [("yes", "no", "maybe"), ("y", "n"), ("yes", "yet")]
    prompts = ["Is it?", "Short answer to a longer question?", "?"]
    for prompt, each, scores in zip(
        prompts, words, model.label_scores(prompts, words), strict=True
    ):
        start = model.tokenizer(prompt)["input_ids"]
        for word, score in zip(each, scores, strict=True):
            way = model.tokenizer(word, add_special_tokens=False)["input_ids"]
            with torch.no_grad():
                log = model.model(torch.tensor([start + way])).logits[0].log_softmax(-1)
            places = range(len(start) - 1, len(start) + len(way) - 1)
            expected = sum(float(log[place, token]) for place, token in zip(places, way))  # noqa: B905
            assert score == pytest.approx(expected, abs=1e-4)


def test_a_batch_that_does_not_fit_is_halved_and_said() -> None:
    said: list[str] = []
    batches = Batches(8, said.append)
    sizes: list[int] = []

    def work(some: Any) -> Any:
        if len(some) > 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        sizes.append(len(some))
        return some

    assert list(batches.map(list(range(9)), work)) == list(range(9))
    assert sizes == [2, 2, 2, 2, 1]
    assert said == [
        "a batch of 8 does not fit into memory: 4 from here",
        "a batch of 4 does not fit into memory: 2 from here",
    ]
    with pytest.raises(torch.cuda.OutOfMemoryError):
        list(Batches(1, said.append).map([1], lambda some: work([0] * 4)))


# Where models are


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `uniproto finetune` leaves: an adapter in model/, and its settings beside."""
    run = tmp_path_factory.mktemp("run")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(1)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    peft.get_peft_model(model, config).save_pretrained(str(run / "model"))
    settings = {"model": str(folder), "template": "Q {instruction} A"}
    (run / "finetune.json").write_text(json.dumps(settings))
    return run


def test_a_tuning_run_knows_its_base_and_its_template(run: Path, folder: Path) -> None:
    expected = ModelPlace(str(folder), run / "model", "Q {instruction} A")
    assert locate(run) == expected
    assert locate(run / "model") == expected
    assert locate(folder) == ModelPlace(str(folder))
    assert locate("owner/name") == ModelPlace("owner/name")
    assert locate(run).fingerprint() != locate(folder).fingerprint()
    assert locate("owner/name").fingerprint() is None


CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("tuned", [{"chats": True}, {"template": "chat"}])
def test_a_model_tuned_on_chats_is_asked_in_its_chat_template(
    folder: Path, tmp_path: Path, tuned: dict[str, object]
) -> None:
    """finetune.json has the usual template beside --messages, which did not take part."""
    run = tmp_path / "run"
    shutil.copytree(folder, run / "model")
    inner = json.loads((folder / "tokenizer.json").read_text())
    begin = {"id": "#", "ids": [7], "tokens": ["#"]}  # like Llama's, it begins every text
    inner["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "#", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {"#": begin},
    }
    (run / "model" / "tokenizer.json").write_text(json.dumps(inner))
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model", bos_token="#")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(run / "model")
    settings = {"model": str(folder), "template": TEMPLATE} | tuned
    (run / "finetune.json").write_text(json.dumps(settings))
    data = tmp_path / "math_test.jsonl"
    data.write_text(json.dumps({"dataset": "svamp", "question": "1+1?", "answer": "2"}) + "\n")
    options = {"data": data, "out": tmp_path / "judged", "log": lambda line: None}
    found = evaluate(
        run, suite="svamp", allow_partial=True, max_new_tokens=4, device="cpu", **options
    )
    prompt = "#<user>1+1?</user><assistant>"
    assert found.items[0]["prompt"] == prompt
    messages = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    trained_on, _, _ = encoded_chat(tokenizer, messages)
    assert load(run)._prompt_tokens([prompt]) == [trained_on]


def test_chats_need_a_chat_template(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "math_test.jsonl"
    data.write_text(json.dumps({"dataset": "svamp", "question": "1+1?", "answer": "2"}) + "\n")
    options = {"suite": "svamp", "data": data, "out": tmp_path / "judged", "allow_partial": True}
    with refused("template", InvalidInputError):
        evaluate(folder, template="chat", **options)
    assert not (tmp_path / "judged").exists()


def test_an_adapter_changes_what_is_written(run: Path, folder: Path) -> None:
    tuned, plain = load(run), load(folder)
    reference = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(folder), str(run / "model")
    )
    ids = torch.tensor([tuned.tokenizer("Once")["input_ids"]])
    with torch.no_grad():
        torch.testing.assert_close(
            tuned.model(ids).logits, reference(ids).logits, atol=1e-4, rtol=1e-4
        )
    assert tuned.generate(PROMPTS) != plain.generate(PROMPTS)
    half = load(run, bf16=True)
    assert half.model.dtype == torch.bfloat16
    assert len(half.generate(["Once"])) == 1


def test_an_adapter_elsewhere_goes_by_its_own_word(run: Path, folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "adapter"
    shutil.copytree(run / "model", alone)
    assert locate(alone).base == str(folder)  # peft wrote it down
    assert locate(alone, base="other/name").base == "other/name"
    config = json.loads((alone / "adapter_config.json").read_text())
    (alone / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": None})
    )
    with pytest.raises(InputFileError, match="--base"):
        locate(alone)


def test_a_run_that_is_not_finished_is_told(tmp_path: Path) -> None:
    (tmp_path / "finetune.json").write_text("{}")
    with pytest.raises(InputFileError, match="not finished"):
        locate(tmp_path)
    (tmp_path / "finetune.json").write_text("{")
    with pytest.raises(InputFileError, match="could not be read"):
        locate(tmp_path)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"num_hidden_layers": 1}, "no place for 4 of its 8 weights"),
        ({"num_hidden_layers": 3}, "missing adapter keys"),
        ({"hidden_size": 8, "intermediate_size": 16, "head_dim": 4}, "must fit the model"),
    ],
)
def test_an_adapter_of_a_model_of_another_shape_is_told(
    run: Path, folder: Path, tmp_path: Path, shape: dict[str, int], said: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    config = json.loads((other / "config.json").read_text()) | shape
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).save_pretrained(other)
    with pytest.raises(InputFileError, match=said) as caught:
        load(ModelPlace(str(other), run / "model"))
    assert "Name the model it was made for with --base" in str(caught.value)


@pytest.fixture
def copied(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of one's own to damage, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(folder, tmp_path / "copied"))


def _change_first_weight(weights: Path) -> None:
    """One bit, far from the end of the file; size and name stay."""
    data = bytearray(weights.read_bytes())
    data[8 + int.from_bytes(data[:8], "little")] ^= 1
    weights.write_bytes(data)


def test_a_fingerprint_sees_every_byte_and_every_file(copied: Path) -> None:
    weights = copied / "model.safetensors"
    before = locate(copied).fingerprint()
    assert locate(copied).fingerprint() == before
    _change_first_weight(weights)
    changed = locate(copied).fingerprint()
    assert changed != before
    (copied / "tokenizer_config.json").write_text("{}")
    assert locate(copied).fingerprint() not in (before, changed)


def test_digests_are_remembered_and_a_damaged_cache_is_made_anew(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNIPROTO_CACHE", str(tmp_path / "cache"))
    before = locate(copied).fingerprint()
    cache = tmp_path / "cache" / "file_digests.json"
    assert cache.is_file()
    with monkeypatch.context() as patched:
        patched.setattr(cache_module, "file_digest", lambda file: pytest.fail("read again"))
        assert locate(copied).fingerprint() == before
    cache.write_text("[1, 2")
    assert locate(copied).fingerprint() == before


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_a_truncated_adapter_is_one_clear_error(
    run: Path, folder: Path, tmp_path: Path, name: str
) -> None:
    adapter = Path(shutil.copytree(run / "model", tmp_path / "adapter"))
    (adapter / name).write_bytes((adapter / name).read_bytes()[:-30])
    with pytest.raises(InputFileError) as caught:
        load(ModelPlace(str(folder), adapter))
    message = str(caught.value)
    assert message.startswith(f"{adapter}: the adapter must fit the model")
    assert "could not be loaded" in message
