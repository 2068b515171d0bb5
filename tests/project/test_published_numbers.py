"""What the docs print of an experiment is what its published rows say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from support.bandwidth_report import bandwidth_reports, chosen_share
from support.curation_report import BESIDE_RANDOM, VERDICTS, curation_reports, picks_table
from support.longtail_report import differences, longtail_reports
from support.statistics import by, difference
from uniproto.cli.experiment import find_scripts, load_script
from uniproto.geometry.bandwidth import AUTO_SHARE

DOCS = Path(__file__).parents[2] / "docs"
_PAIR = re.compile(r"[+-]?\d+\.\d+ ± \d+\.\d+")  # 1.2 ± 0.3: a difference and its standard error


def rows_of(*names: str) -> list[dict[str, Any]]:
    tables = [pyarrow.csv.read_csv(DOCS / "results" / f"{name}.csv") for name in names]
    return [row for table in tables for row in table.to_pylist()]


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8").replace("−", "-")  # a minus sign, as tables print it


def pairs(text: str) -> set[str]:
    """Differences and their errors, without the sign, which prose often says in words."""
    flat = " ".join(text.replace("−", "-").split())
    return {pair.lstrip("+-") for pair in _PAIR.findall(flat)}


@pytest.fixture(scope="module")
def longtail_rows() -> list[dict[str, Any]]:
    return rows_of("longtail", "longtail-factors", "longtail-kernels")


@pytest.fixture(scope="module")
def longtail(longtail_rows: list[dict[str, Any]]) -> dict[str, str]:
    return longtail_reports(longtail_rows)


def tail_reports() -> dict[str, str]:
    found: dict[str, str] = load_script(find_scripts()["tail"]).tail_reports(rows_of("tail"))
    return found


def tables_of(name: str) -> list[str]:
    return re.findall(r"^```text\n(.*?)\n```$", page(name), re.MULTILINE | re.DOTALL)


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.replace("−", "-").split("\n") if line.strip()]


def test_tables_of_long_tails_are_those_of_the_rows(longtail: dict[str, str]) -> None:
    printed = set(lines_of(page("longtail.md")))
    for name, table in longtail.items():
        assert [line for line in lines_of(table) if line not in printed] == [], name


def test_prose_on_long_tails_quotes_the_tables(
    longtail: dict[str, str], longtail_rows: list[dict[str, Any]]
) -> None:
    cells = [
        f"{100 * cell['difference']:.1f} ± {100 * cell['standard_error']:.1f}"
        for cell in differences(longtail_rows)
    ]
    tail = tail_reports()
    known = pairs("\n".join([*longtail.values(), *tail.values(), *cells]))
    assert pairs(page("longtail.md")) <= known
    printed = set(lines_of(page("longtail.md")))
    for name, table in tail.items():
        assert [line for line in lines_of(table) if line not in printed] == [], name
    assert pairs(page("choosing.md")) <= pairs("\n".join(tail.values()))
    of_figure_3 = [line for line in page("reproduction.md").split("\n") if "Figure 3" in line]
    assert len(of_figure_3) == 3
    for line in of_figure_3:
        assert pairs(line) <= known


def test_the_bandwidth_study_is_that_of_the_rows() -> None:
    rows = rows_of("bandwidth")
    reports = bandwidth_reports(rows)
    printed = set(lines_of(page("bandwidth.md")))
    for name in ("shares", "choice", "held out"):
        missing = [line for line in lines_of(reports[name]) if line not in printed]
        assert missing == [], name
    assert pairs(page("bandwidth.md")) <= pairs("\n".join(reports.values()))


def test_auto_is_what_the_study_chooses() -> None:
    assert chosen_share([row for row in rows_of("bandwidth") if row["draws"] == "tuning"]) == (
        AUTO_SHARE
    )


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    numbers = re.compile(r"\d(?:[\d,]*\d)?(?:\.\d+)?")
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    speed = readme.partition("## Speed and quality")[2].partition("\n## ")[0]
    rows = [line for line in speed.split("\n") if line.startswith("| ")][1:]
    assert len(rows) > 5
    known = set(numbers.findall(page("benchmarks.md")))
    for row in rows:
        assert set(numbers.findall(row)) <= known, row


def test_density_weights_are_those_of_the_rows() -> None:
    reports = load_script(find_scripts()["density"]).density_reports(rows_of("density"))
    printed = set(lines_of(page("density-weights.md")))
    for name in ("beside", "sets"):
        assert [line for line in lines_of(reports[name]) if line not in printed] == [], name


def test_tables_of_tabular_data_are_those_of_the_rows() -> None:
    script, rows = load_script(find_scripts()["tabular"]), rows_of("tabular")
    differences_apart = script.differences_report(rows).partition("\n")[2]
    reports = [script.tables(rows), script.costs_report(rows), differences_apart]
    printed = set(lines_of(page("tabular.md")))
    assert [line for line in lines_of("\n".join(reports)) if line not in printed] == []
    assert pairs(page("tabular.md")) <= pairs(differences_apart)


def test_tables_of_the_experiments_are_those_of_the_rows() -> None:
    weights, gains, synthetic = (
        load_script(find_scripts()[name]) for name in ("weights", "gains", "synthetic")
    )
    of_gains = rows_of("gains")
    rules = gains._with_shortfall([row for row in of_gains if row["part"] == "rules"])
    mixtures: dict[str, Any] = {name: {} for name in synthetic.MIXTURES}
    for (name, method, _), unit in by(rows_of("synthetic"), "mixture", "method", "seed").items():
        mixtures[name].setdefault(method, []).append(unit)
    reports = {
        "weights": "".join(
            table(weights.skews(rows_of("weights")), weights.PAPER)
            for table in (weights.skew_table, weights.accuracy_table)
        ),
        "gains": gains.rules_table(rules, gains.PAPER)
        + gains.strengths_table(
            [row for row in of_gains if row["part"] == "entropic"], gains.PAPER
        ),
        "synthetic": "".join(
            "".join(synthetic.mixture_report(name, units, synthetic.Sizes(500, 20, 5)))
            for name, units in mixtures.items()
        ),
    }
    for name, report in reports.items():
        known = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", report)]
        about = page("experiments-results.md").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for row in re.findall(r"^\|.*\d.*$", about, re.MULTILINE):
            for number in re.findall(r"\d+\.\d+", row):
                within = 0.501 * 10.0 ** -len(number.partition(".")[2])
                assert any(abs(float(number) - value) <= within for value in known), row


def test_the_studies_of_curation_are_those_of_their_rows() -> None:
    large, second, small = (
        curation_reports(rows_of(name)) for name in ("curation-full", "curation-second", "curation")
    )
    every = [*large.values(), *second.values(), *small.values()]
    printed = [lines_of(block) for block in tables_of("curation-results.md")]
    tables = [lines_of(table) for table in every]
    assert [block for block in printed if block not in tables] == []
    for name in large:
        if name in (BESIDE_RANDOM, VERDICTS) or name.endswith(", beside"):
            assert lines_of(large[name]) in printed, name
    for line in lines_of(large[VERDICTS])[1:]:
        way, below, *others = line.rsplit(maxsplit=3)
        if way in ("random", "target"):
            said = f"{below} of {sum(map(int, (below, *others)))} comparisons"
            assert said in " ".join(page("curation-results.md").split()), way
    known = pairs("\n".join(every))
    for name in ("curation.md", "curation-results.md"):
        assert pairs(page(name)) <= known, name
    of_curation = [line for line in page("reproduction.md").split("\n") if "curation" in line]
    assert of_curation
    for line in of_curation:
        assert pairs(line) <= known


def test_what_is_said_of_the_picks_of_curation_is_in_the_rows() -> None:
    picked: dict[tuple[str, str], int] = {}
    for row in rows_of("curation-picks"):
        kind = "DM" if row["source"].startswith("data/DM/") else Path(row["source"]).stem
        picked[row["method"], kind] = picked.get((row["method"], kind), 0) + row["rows"]
    about = " ".join(
        page("curation-results.md").partition("**Why**")[2].partition("\n- ")[0].split()
    )
    for words in (
        f"{picked['uniproto', 'DM']} from generated questions",
        f"(random: {picked['random', 'DM']}; nearest to any target: "
        f"{picked['nearest_to_any', 'DM']})",
        f"{picked['uniproto', 'asdiv']} from asdiv",
        f"(random: {picked['random', 'asdiv']})",
        f"{picked['dsir', 'asdiv']} from asdiv and {picked['dsir', 'gsm_train']} from gsm",
    ):
        assert words in about


def test_the_picks_of_the_second_study_of_curation_are_those_of_the_rows() -> None:
    printed = page("curation-results.md")
    for line in picks_table(rows_of("curation-second-picks")):
        assert line in printed


def test_fine_tuning_is_that_of_the_rows() -> None:
    names = "finetuning finetuning_settings finetuning_ablations superglue exact_answers"
    methods, settings, ablations, superglue, exact = (
        load_script(find_scripts()[name]) for name in names.split()
    )
    known = [
        methods.tables(rows_of("finetuning")),
        settings.table(rows_of("finetuning_settings")),
        ablations.table(rows_of("finetuning_ablations")),
        superglue.table(rows_of("superglue")),
        exact.table(rows_of("exact_answers")),
        *_beside("superglue", "random", "value", 100, ".1f", measure="accuracy", task="sst2"),
        *_beside("superglue", "random", "value", 100, ".1f", measure="accuracy", task="cb"),
        *_of_pretraining(),
    ]
    about = page("training-results.md")
    printed = [
        line
        for block in re.findall(r"^```text\n(.*?)\n```$", about, re.MULTILINE | re.DOTALL)
        for line in lines_of(block)
    ]
    assert printed
    # A table of more rows may be wider.
    in_rows = {" ".join(line.split()) for line in lines_of("\n".join(known))}
    assert {" ".join(line.split()) for line in printed} <= in_rows
    assert pairs(about) <= pairs("\n".join(known))
    of_training = page("reproduction.md").partition("## Training language models")[2]
    assert pairs(of_training.partition("\n## ")[0]) <= pairs("\n".join(known))


def test_open_claims_about_models_say_what_would_close_them() -> None:
    of_models = page("reproduction.md").partition("## Training language models")[2]
    rows = [line for line in of_models.split("\n") if line.startswith("| ")]
    links = [
        line.count("](") and line.count("#what-is-open)") for line in rows if "**open**" in line
    ]
    assert len(links) > 3
    assert 0 not in links
    assert "not run" not in page("reproduction.md")


def test_pretraining_is_that_of_the_rows() -> None:
    about = page("pretraining-results.md").partition("Seed by seed")[2].partition("\n\n")[0]
    assert pairs(about)
    assert pairs(about) <= pairs("\n".join(_of_pretraining()))


def test_the_table_of_500m_is_that_of_the_rows() -> None:
    about = page("pretraining-results.md").partition("## 500 million")[2].partition("\n## ")[0]
    last = [row for row in rows_of("pretraining-500m") if row["step"] == 500]
    for row in last:
        (line,) = [line for line in about.split("\n") if line.startswith(f"| `{row['method']}`")]
        assert f"{row['log_perplexity']:.3f}" in line
    assert about.count("| 4.") + about.count("| **4.") == len(last)
    assert pairs(about)
    assert pairs(about) <= pairs("\n".join(_of_pretraining()))


def _of_pretraining() -> list[str]:
    """UniPROT beside the others, seed by seed, after 500 and 2,000 steps."""
    return [
        line
        for other in ("full", "colm", "random")
        for name, step in (("pretraining", 500), ("pretraining", 2000), ("pretraining-500m", 500))
        for line in _beside(name, other, "log_perplexity", 1, ".4f", step=step)
    ]


def _beside(
    name: str, other: str, column: str, scale: float, digits: str, **only: Any
) -> list[str]:
    """The difference of every method to another over their seeds, and its standard error."""
    found: dict[str, dict[int, float]] = {}
    for row in rows_of(name):
        if all(row[key] == value for key, value in only.items()):
            found.setdefault(row["method"], {})[row["seed"]] = scale * row[column]
    lines = []
    for method, values in found.items():
        seeds = sorted(values.keys() & found[other].keys())
        if method != other and len(seeds) > 1:
            apart = difference([values[n] for n in seeds], [found[other][n] for n in seeds])
            lines.append(f"{method}: {apart.mean:{digits}} ± {apart.error:{digits}}")
    return lines
