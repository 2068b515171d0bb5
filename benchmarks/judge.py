"""The judge: pairs of a model's text and a gold answer, ours and math-verify in one run.

`judge_pairs.jsonl` holds natural pairs with a label and the reason for it. A wrong answer called
right is the worse error. The rules were written with most of the pairs in view; those that are
`held_out` were written after the rules, and no rule was changed for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.common import Report

TITLE = "judge: natural pairs of an answer and a gold, called right or not"
_PAIRS = Path(__file__).with_name("judge_pairs.jsonl")
MOST_WRONG = 0.05


def run(report: Report, quick: bool) -> None:
    pairs = [json.loads(line) for line in _PAIRS.read_text("utf-8").splitlines()]
    pairs = pairs[::10] if quick else pairs
    judges: dict[str, Callable[[str, str], bool]] = {"uniproto": _ours}
    if find_spec("math_verify") is None:
        report.row("math-verify", unavailable="pip install math-verify")
    else:
        judges["math-verify"] = _theirs
    for name, judge in judges.items():
        errors = [pair for pair in pairs if judge(pair["text"], pair["gold"]) != pair["right"]]
        for part, held_out in (("", False), (", held out", True)):
            those = [pair for pair in errors if pair.get("held_out", False) is held_out]
            accepted = sum(not pair["right"] for pair in those)
            report.row(
                f"{name}{part}",
                pairs=sum(pair.get("held_out", False) is held_out for pair in pairs),
                wrong_called_right=accepted,
                right_called_wrong=len(those) - accepted,
            )
        for pair in errors:
            called = f"called {'wrong' if pair['right'] else 'right'}"
            print(f"  {name}: {called}: {pair['text']} against {pair['gold']} ({pair['reason']})")
        if name == "uniproto":
            seen = [pair for pair in pairs if not pair.get("held_out", False)]
            share = sum(pair in seen for pair in errors) / len(seen)
            report.figure("errors of ours", share, f"≤ {MOST_WRONG}", share <= MOST_WRONG)


def _ours(text: str, gold: str) -> bool:
    from uniproto.lm.judging.answers import extract_answer, same_answer

    return same_answer(extract_answer(text, "math"), gold, "math", time_limit=10)


def _theirs(text: str, gold: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(f"${gold}$"), parse(text)))
