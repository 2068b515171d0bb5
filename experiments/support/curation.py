"""Training on chosen rows and measuring on held-out ones: one flat loop for every choice."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from support.lean_lora import make_lean
from uniproto.lm.features.tokens import PaddingCollator, SourcedExample, tokenise
from uniproto.lm.finetune.lora import lora_targets
from uniproto.lm.models import load_model, padding_token


@dataclass(frozen=True)
class Recipe:
    """How a model is trained, the same for every choice."""

    model: str
    template: str
    steps: int
    batch: int
    max_length: int
    rate: float = 2e-4
    rank: int = 128
    alpha: int = 512
    tokens_at_once: int = 3072  # with padding: several runs share a card
    half: bool = False  # bfloat16 arithmetic; adapters are in float32 all the same
    blocks: int | None = None  # number of last blocks with adapters; None: all


class Trainee:
    """A model with fresh LoRA adapters and Adam, and its tokenizer."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        import peft
        import torch

        self.recipe = recipe
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        loaded, self.tokenizer, self.below = _loaded(recipe.model, recipe.half, recipe.blocks)
        model = copy.deepcopy(loaded)  # adapters are put into it
        torch.manual_seed(seed)
        settings = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=recipe.rank,
            lora_alpha=recipe.alpha,
            lora_dropout=0.0,
            target_modules=lora_targets(model),
        )
        self.model = peft.get_peft_model(model, settings).to(self.device)
        if self.device.type == "cuda":
            make_lean(self.model)
        trained = [each for each in self.model.parameters() if each.requires_grad]
        for each in trained:  # steps of 2e-4 are lost in bfloat16
            each.data = each.data.float()
        self.optimizer = torch.optim.AdamW(
            trained, lr=recipe.rate, fused=self.device.type == "cuda"
        )
        self.collate = PaddingCollator(padding_token(self.tokenizer))

    def tokens(self, rows: Sequence[SourcedExample]) -> list[Any]:
        found, _ = tokenise(
            rows, self.tokenizer, self.recipe.max_length, "truncate", self.recipe.template
        )
        return [found[place] for place in range(len(found))]

    def step(self, examples: Sequence[Any]) -> None:
        """One step on the mean loss of the examples' answer tokens."""
        self.model.train()
        self.optimizer.zero_grad()
        answers = sum(sum(label >= 0 for label in each["labels"][1:]) for each in examples)
        for some in self._batches(examples):
            losses, _, _ = self._of_answers([examples[place] for place in some])
            (losses.sum() / answers).backward()
        self.optimizer.step()

    def judge(self, examples: Sequence[Any]) -> dict[str, float]:
        """Of held-out examples: the mean loss of their answers, and how many are right.

        An answer is right where each of its tokens is the likeliest one after those before it:
        the model, asked without drawing at random, would write exactly this answer.
        """
        import torch

        self.model.eval()
        losses, right = [0.0] * len(examples), [False] * len(examples)
        for some in self._batches(examples):
            with torch.no_grad():
                loss, fits, row = self._of_answers([examples[place] for place in some])
            counts = torch.bincount(row, minlength=len(some))
            means = torch.bincount(row, loss.double(), minlength=len(some)) / counts
            whole = torch.bincount(row, fits.double(), minlength=len(some)) == counts
            measured = zip(some, means.tolist(), whole.tolist(), strict=True)
            for place, mean, fitting in measured:
                losses[place], right[place] = mean, fitting
        return {"loss": float(np.nanmean(losses)), "right": float(np.mean(right))}

    def _batches(self, examples: Sequence[Any]) -> Iterator[list[int]]:
        """Examples of like length, as many together as the tokens at once allow."""
        order = sorted(range(len(examples)), key=lambda place: len(examples[place]["labels"]))
        some: list[int] = []
        for place in order:
            longest = len(examples[place]["labels"])
            if some and longest * (len(some) + 1) > self.recipe.tokens_at_once:
                yield some
                some = []
            some.append(place)
        yield some

    def _of_answers(self, examples: list[Any]) -> tuple[Any, Any, Any]:
        """Of every answer token: its loss, whether it is the likeliest one, and whose it is."""
        import torch

        batch = {name: value.to(self.device) for name, value in self.collate(examples).items()}
        if self.below is not None:
            batch["inputs_embeds"] = self.below(batch.pop("input_ids"), batch["attention_mask"])
        labels = batch.pop("labels")[:, 1:]
        counted = labels >= 0
        core: Any = self.model.get_base_model()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.half):
            hidden = core.base_model(**batch).last_hidden_state[:, :-1][counted]
            logits = core.get_output_embeddings()(hidden).float()  # of answer tokens alone
        losses = torch.nn.functional.cross_entropy(logits, labels[counted], reduction="none")
        return losses, logits.argmax(dim=-1) == labels[counted], counted.nonzero()[:, 0]

    def save(self, folder: Path) -> str:
        """The adapter and Adam's moments, for gradients as LESS takes them."""
        import torch

        self.model.save_pretrained(str(folder))
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")
        return str(folder)


def train(
    recipe: Recipe,
    chosen: Sequence[SourcedExample],
    alongside: Sequence[SourcedExample],
    held_out: Sequence[SourcedExample],
    seed: int,
) -> dict[str, float]:
    """Log-perplexity of the held-out rows, and the share answered right, before and after.

    Rows `alongside` the chosen ones make up half of every batch.
    """
    trainee = Trainee(recipe, seed)
    measured = trainee.tokens(held_out)
    before = _before(recipe, tuple(held_out))
    sets = [trainee.tokens(rows) for rows in (chosen, alongside) if len(rows)]
    draws = [endless(len(rows), seed) for rows in sets]
    share = recipe.batch // len(sets)
    for _ in range(recipe.steps):
        trainee.step(
            [rows[next(draw)] for rows, draw in zip(sets, draws, strict=True) for _ in range(share)]
        )
    after = trainee.judge(measured)
    return {
        "before": before["loss"],
        "after": after["loss"],
        "right_before": before["right"],
        "right_after": after["right"],
    }


@lru_cache(maxsize=8)
def _before(recipe: Recipe, held_out: tuple[SourcedExample, ...]) -> dict[str, float]:
    """What the model makes of held-out rows untrained: the same for all that is chosen."""
    trainee = Trainee(recipe, 0)
    return trainee.judge(trainee.tokens(held_out))


@lru_cache(maxsize=1)
def _loaded(name: str, half: bool, blocks: int | None) -> tuple[Any, Any, Below | None]:
    """A model on its device, its tokenizer and its lower blocks; a process loads them once.

    With `blocks`, the model keeps only its last ones, and reads what the lower ones make of a row.
    """
    import torch

    model, tokenizer = load_model(name, half)
    if torch.cuda.is_available():
        model.to("cuda")
    else:  # on processors the backward pass of fused attention takes longer than all the rest
        model.set_attn_implementation("eager")
    if blocks is None:
        return model, tokenizer, None
    lower = copy.deepcopy(model.base_model).eval()
    lower.layers, lower.norm = lower.layers[:-blocks], torch.nn.Identity()
    model.base_model.layers = model.base_model.layers[-blocks:]
    return model, tokenizer, Below(lower)


class Below:
    """The blocks that training leaves as they are: what they make of a row is computed once."""

    def __init__(self, lower: Any) -> None:
        self.lower = lower
        self.rows: dict[bytes, Any] = {}

    def __call__(self, tokens: Any, mask: Any) -> Any:
        """Hidden states of every token of a padded batch."""
        import torch

        lengths = mask.sum(dim=1).tolist()
        each = zip(tokens.cpu().numpy(), lengths, strict=True)
        keys = [row[:length].tobytes() for row, length in each]
        new = [place for place, key in enumerate(keys) if key not in self.rows]
        if new:
            with torch.no_grad():
                made = self.lower(input_ids=tokens[new], attention_mask=mask[new])
            for place, states in zip(new, made.last_hidden_state, strict=True):
                self.rows[keys[place]] = states[: lengths[place]].clone()
        return torch.nn.utils.rnn.pad_sequence([self.rows[key] for key in keys], batch_first=True)


def warm_up(
    recipe: Recipe, rows: Sequence[SourcedExample], folder: Path, checkpoints: int, seed: int
) -> list[str]:
    """Checkpoints of a short run on a few random rows; those that are there are not made again."""
    places = [folder / f"checkpoint-{number}" for number in range(1, checkpoints + 1)]
    if all((place / "optimizer.pt").is_file() for place in places):
        return [str(place) for place in places]
    trainee = Trainee(recipe, seed)
    tokens = trainee.tokens(rows)
    draw = endless(len(tokens), seed)
    saved = []
    for place in places:
        for _ in range(max(1, recipe.steps // checkpoints)):
            trainee.step([tokens[next(draw)] for _ in range(recipe.batch)])
        saved.append(trainee.save(place))
    return saved


def endless(count: int, seed: int) -> Iterator[int]:
    """Row numbers in random order, all of them before any comes again.

    >>> draw = endless(3, 0)
    >>> sorted(next(draw) for _ in range(3))
    [0, 1, 2]
    """
    random = np.random.default_rng(seed)
    while True:
        yield from random.permutation(count).tolist()
