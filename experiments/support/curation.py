"""Training on chosen rows and measuring on held-out ones: one flat loop for every choice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.training.finetune.data import InstructionRow, PaddingCollator, tokenise
from uniproto.training.finetune.model import load_model, lora_targets, padding_token
from uniproto.training.losses import example_losses

_AT_ONCE = 64  # held-out examples per forward pass


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
    micro_batch: int = 16


class Trainee:
    """A model with fresh LoRA adapters and Adam, and its tokenizer."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        import peft
        import torch

        self.recipe = recipe
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(seed)
        model, self.tokenizer = load_model(recipe.model, half=self.device.type == "cuda")
        settings = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=recipe.rank,
            lora_alpha=recipe.alpha,
            lora_dropout=0.0,
            target_modules=lora_targets(model),
        )
        self.model = peft.get_peft_model(model, settings).to(self.device)
        trained = [each for each in self.model.parameters() if each.requires_grad]
        for each in trained:  # steps of 2e-4 are lost in bfloat16
            each.data = each.data.float()
        self.optimizer = torch.optim.AdamW(trained, lr=recipe.rate)
        self.collate = PaddingCollator(padding_token(self.tokenizer))

    def tokens(self, rows: Sequence[InstructionRow]) -> Any:
        return tokenise(
            rows, self.tokenizer, self.recipe.max_length, "truncate", self.recipe.template
        )[0]

    def step(self, examples: Sequence[Any]) -> float:
        """One step on the mean loss of the examples' answer tokens."""
        import torch

        self.model.train()
        self.optimizer.zero_grad()
        answers = sum(sum(label >= 0 for label in each["labels"]) for each in examples)
        total = 0.0
        for first in range(0, len(examples), self.recipe.micro_batch):
            batch = self.collate(list(examples[first : first + self.recipe.micro_batch]))
            batch = {name: value.to(self.device) for name, value in batch.items()}
            half = self.device.type == "cuda"
            with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
                logits = self.model(**{k: v for k, v in batch.items() if k != "labels"}).logits
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].float().flatten(0, 1),
                batch["labels"][:, 1:].flatten(),
                reduction="sum",
            )
            (loss / answers).backward()
            total += float(loss.detach())
        self.optimizer.step()
        return total / answers

    def log_perplexity(self, tokens: Any) -> float:
        """The mean over held-out examples of the mean loss of their answers."""
        import torch

        found = []
        for first in range(0, len(tokens), _AT_ONCE):
            some = [tokens[place] for place in range(first, min(first + _AT_ONCE, len(tokens)))]
            batch = {name: value.to(self.device) for name, value in self.collate(some).items()}
            half = self.device.type == "cuda"
            with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
                found += example_losses(self.model, batch).float().cpu().tolist()
        return float(np.mean([value for value in found if math.isfinite(value)]))

    def save(self, folder: Path) -> str:
        """The adapter and Adam's moments, for gradients as LESS takes them."""
        import torch

        self.model.save_pretrained(str(folder))
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")
        return str(folder)


def train(
    recipe: Recipe,
    chosen: Sequence[InstructionRow],
    beside: Sequence[InstructionRow],
    held_out: Sequence[InstructionRow],
    seed: int,
) -> dict[str, float]:
    """Log-perplexity of the held-out rows before and after training.

    With rows `beside` the chosen ones, they are half of every batch.
    """
    trainee = Trainee(recipe, seed)
    measured = trainee.tokens(held_out)
    before = trainee.log_perplexity(measured)
    sets = [trainee.tokens(rows) for rows in (chosen, beside) if len(rows)]
    draws = [endless(len(rows), seed) for rows in sets]
    share = recipe.batch // len(sets)
    for _ in range(recipe.steps):
        trainee.step(
            [rows[next(draw)] for rows, draw in zip(sets, draws, strict=True) for _ in range(share)]
        )
    return {"before": before, "after": trainee.log_perplexity(measured)}


def warm_up(
    recipe: Recipe, rows: Sequence[InstructionRow], folder: Path, checkpoints: int, seed: int
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
