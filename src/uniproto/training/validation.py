"""Log-perplexity on held-out examples: the mean loss per answer token, overall and by source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uniproto.errors import MissingExtraError
from uniproto.training.answer_loss import NO_LABEL, example_losses

try:
    import torch
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Fine-tuning", "train") from error


def log_perplexities(
    model: Any,
    rows: Any,
    collator: Callable[[list[Any]], Mapping[str, Any]],
    batch_size: int,
    *,
    process: int = 0,
    processes: int = 1,
    gather: Callable[[Any], Any] | None = None,
) -> tuple[float, dict[str, float]]:
    """Σ losses / Σ answer tokens: of all examples, and of each source's.

    Every process looks at its share of the rows; `gather` joins their sums. Examples without a
    finite loss make the number of their source NaN: nothing is left out here.
    """
    sources = sorted({row["source"] for row in rows})
    place = {source: number for number, source in enumerate(sources)}
    sums = torch.zeros(len(sources), 2, dtype=torch.float64)
    mine = sorted(range(process, len(rows), processes), key=lambda row: len(rows[row]["input_ids"]))
    for first in range(0, len(mine), batch_size):
        some = [rows[row] for row in mine[first : first + batch_size]]
        batch = collator([{k: v for k, v in each.items() if k != "source"} for each in some])
        losses = example_losses(model, batch).double().cpu()
        tokens = batch["labels"][:, 1:].ne(NO_LABEL).sum(dim=1).double().cpu()
        for each, loss, count in zip(some, losses, tokens, strict=True):
            sums[place[each["source"]]] += torch.stack((loss * count, count))
    if processes > 1 and gather is not None:
        sums = gather(sums[None]).sum(dim=0).cpu()
    total = sums.sum(dim=0)
    of_source = (sums[:, 0] / sums[:, 1]).tolist()
    return float(total[0] / total[1]), dict(zip(sources, of_source, strict=True))
