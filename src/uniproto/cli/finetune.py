"""`uniproto finetune`: train a language model on the chosen examples of every pool."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

from uniproto.cli.parser import add_settings, flag_of, kinds_of, number, parse_int
from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    needing,
    printable,
    require_name,
)
from uniproto.runtime.settings import described


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "finetune",
        usage="%(prog)s {--model MODEL | --preset NAME} --data FILE -o DIR [options]",
        help="fine-tune a language model on chosen examples",
        description="Fine-tune a causal language model. Every step looks at a pool of examples, "
        "chooses some of them, and trains on those.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto finetune --preset mathinstruct-phi --data train.jsonl --out phi
              uniproto finetune --config run.yaml --method random --out base
              torchrun --nproc_per_node 2 -m uniproto finetune --model ./my-model \\
                  --data train.jsonl --out run

            DATA has the columns source, instruction and output. Only answer tokens count in the
            loss. The same command resumes from the last checkpoint after a kill.

            what is written to OUT:
              metrics.jsonl            one row per logged step: losses, times, chosen per source
              curves.csv, .png         log-perplexity of held-out answers, overall and per source
              result.json              settings, versions, counts, first and last validation
              model/, checkpoint-*/    the trained model (with LoRA: the adapter); to resume from
            """),
    )
    parser.late = _add_options
    parser.set_defaults(run=run)


def _add_options(parser: argparse.ArgumentParser) -> None:
    from uniproto.lm.finetune.settings import PRESETS, FinetuneSettings

    parser.add_argument("--preset", choices=tuple(PRESETS), metavar="NAME", help=", ".join(PRESETS))
    parser.add_argument(
        "--config", metavar="YAML", help="a file of options, which the command line overrides"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="start over: remove an earlier run in OUT"
    )
    add_settings(parser, FinetuneSettings)


def run(options: argparse.Namespace) -> None:
    from uniproto.lm.finetune.settings import FinetuneSettings, preset

    given = dict(vars(options))
    for name in ("run", "preset", "fresh", "config"):
        del given[name]
    if options.config is not None:
        given = read_config(options.config) | given
    if given.get("source", "") is None:  # --no-source: one selection over the pool
        given.setdefault("mode", "batch")
    values = {**(preset(options.preset) if options.preset else {}), **given}
    if "lora_r" in given and "lora_alpha" not in given:
        values.pop("lora_alpha", None)  # the preset's belongs to the preset's rank
    if values.get("method", "uniproto") != "uniproto" and "metric" not in given:
        values.pop("metric", None)  # the preset's is that of UniPROT
    for name in ("model", "data", "out"):
        if name not in values:
            raise InvalidInputError("must be given.", parameter=name)
    settings = FinetuneSettings(**values)
    from uniproto.lm.batches.trainer import leave_together
    from uniproto.lm.finetune import finetune

    result = finetune(settings, fresh=options.fresh)
    leave_together()
    if result and not settings.quiet:
        print_summary(result, settings.out)


def read_config(path: str) -> dict[str, Any]:
    """Options of the command from a YAML file: `learning-rate: 2e-5`, one per line."""
    with needing("A --config file", "train"):
        import yaml
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise InputFileError(f"{path} cannot be read as YAML ({reason}). Correct it.") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InputFileError(f"{path} must hold options in YAML, such as 'steps: 500'.")
    return _values({name.replace("-", "_"): value for name, value in found.items()}, path)


def _values(given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Options as they are typed on the command line; one without a value is not given."""
    from uniproto.lm.finetune.settings import FinetuneSettings

    known = {each.name: each for each in described(FinetuneSettings)}
    kinds, found = kinds_of(FinetuneSettings), {}
    for name, value in given.items():
        require_name(f"option in {path}", name, known)
        try:
            if value is not None or known[name].metadata["off"]:
                found[name] = None if value is None else _value(known[name], kinds[name], value)
        except argparse.ArgumentTypeError as error:
            raise InputFileError(f"{path}: {flag_of(name)}: {error}. Correct that line.") from None
        except InvalidInputError as error:
            raise InputFileError.of(path, error, "Correct that line.") from error
    return found


def _value(option: Field[Any], kind: Any, value: Any) -> Any:
    about, listed = option.metadata, value if isinstance(value, list) else [value]
    if kind is bool:
        if not isinstance(value, bool):
            raise argparse.ArgumentTypeError(f"must be true or false, not {value!r}")
        return value
    parse = about["parse"] or {int: parse_int, float: number}.get(kind, str)
    if about["repeated"]:
        return [parse(str(each)) for each in listed]
    found = parse(",".join(map(str, listed)))
    if about["choices"] is not None:
        require_name(flag_of(option.name), found, about["choices"])
    return found


def print_summary(result: Mapping[str, Any], out: str) -> None:
    settings, first, last = result["settings"], result["first"], result["last"]
    line = "{method}, per {mode}: {keep} of {pool} examples, ".format_map(settings)
    epochs = settings["epochs"]
    print(line + (f"{settings['steps']:,} steps" if epochs is None else f"{epochs:g} epochs"))
    print(f"  training rows    {sum(result['train_rows'].values()):,}")
    if result["too_long"]:
        length = f"of more than {settings['max_length']} tokens"
        outcome = {"truncate": "cut off", "skip": "skipped"}[settings["too_long"]]
        print(f"  too long         {result['too_long']:,} {length}, {outcome}")
    if result["left_out"]:
        print(f"  never chosen     {result['left_out']:,} with NaN or infinity")
    if last is not None:
        print("  log-perplexity of held-out answers, before → after")
        before = {"(all sources)": first["val_loss"], **first["val_loss_by_source"]}
        after = {"(all sources)": last["val_loss"], **last["val_loss_by_source"]}
        width = max(len(printable(name)) for name in after)
        for name, value in after.items():
            print(f"    {printable(name):{width}}  {_number(before[name])} → {_number(value)}")
    if result["selection_share"] is not None:
        print(f"  selection took   {result['selection_share']:.0%} of a step")
    print(f"  written to       {printable(out)}")


def _number(value: float | None) -> str:
    return "NaN" if value is None else f"{value:.4f}"
