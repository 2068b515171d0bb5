"""The command line: one file per command, heavy imports only when a command runs."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uniproto.cli import (
    certify,
    compare,
    cost,
    curate,
    demo,
    drift,
    embed,
    evaluate,
    experiment,
    finetune,
    nearest,
    path,
    pretrain,
    report,
    select,
    update,
    verify,
)
from uniproto.cli.parser import Parser
from uniproto.errors import DataWarning, MissingExtraError, UniprotoError, called, printable
from uniproto.runs.lock import PRIVATE
from uniproto.runs.publish import Noted, noting
from uniproto.runtime import progress
from uniproto.runtime.interrupts import Terminated, exit_status, sigterm_interrupts
from uniproto.version import __version__

_COMMANDS = (
    demo,
    embed,
    select,
    curate,
    compare,
    path,
    cost,
    certify,
    verify,
    drift,
    update,
    report,
    nearest,
    experiment,
    finetune,
    evaluate,
    pretrain,
)


# What an interrupted command goes on from, where it lies in the folder of its results.
_SAVED: dict[Any, dict[str, str]] = {
    select.run: {
        f"{PRIVATE}/checkpoint*.npz": "what was done",
        f"{PRIVATE}/parts-*.npz": "the parts that are done",
    },
    finetune.run: {"checkpoint-*/trainer_state.json": "the last checkpoint"},
    pretrain.run: {"checkpoints/*": "the last checkpoint"},
    evaluate.run: {"items.jsonl": "the answers there are"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Errors are one message, without a traceback."""
    try:
        _open_streams()
        parser = build_parser()
        options = parser.parse_args(arguments)
        typed = sys.argv[1:] if arguments is None else arguments
        if "typed" in options:  # a page of it names the command
            options.typed = shlex.join(["uniproto", *map(str, typed)])
    except KeyboardInterrupt as error:
        return _interrupted(error, "nothing was written")
    noted, flags = Noted(), _flags(parser, options)
    try:
        progress.silent = "quiet" in options and options.quiet
        with sigterm_interrupts(), noting(noted), called(flags), _doubts(options):
            status: int | None = options.run(options)
        sys.stdout.flush()
    except UniprotoError as error:
        return _failed(error)
    except ModuleNotFoundError as error:
        extra = {pretrain.run: "jax", evaluate.run: "judge"}.get(options.run, "train")
        return _failed(MissingExtraError(f"This command ({error})", extra))
    except MemoryError as error:
        return _failed(f"Not enough memory ({error}). Use fewer rows.")
    except KeyboardInterrupt as error:
        return _interrupted(error, _left_behind(options, noted))
    except BrokenPipeError:  # the reader of our output has gone, for example `head`
        _silence_output()
        return 0
    except OSError as error:  # files have errors of their own: most likely what we print to
        if error.filename is None:
            _silence_output()
        return _failed(
            f"{error.filename or 'standard output'}: it could not be read or written "
            f"({error.strerror or error}). Check where it leads, and free some space."
        )
    return status or 0


def _failed(message: object) -> int:
    print(f"uniproto: error: {printable(message)}", file=sys.stderr)
    return 2


@contextmanager
def _doubts(options: argparse.Namespace) -> Iterator[None]:
    """Show warnings about the data as one line each; not again where a result is looked at."""
    known = options.run in (certify.run, verify.run, report.run) or progress.silent

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, DataWarning):
            print(f"uniproto: warning: {printable(message)}", file=sys.stderr)
        else:
            usual(message, category, *place, **more)

    with warnings.catch_warnings():
        usual, warnings.showwarning = warnings.showwarning, show
        warnings.simplefilter("ignore" if known else "always", DataWarning)
        yield


def _interrupted(error: KeyboardInterrupt, left_behind: str) -> int:
    word = "terminated" if isinstance(error, Terminated) else "interrupted"
    print(f"uniproto: {word}; {left_behind}.", file=sys.stderr)
    return exit_status(error)


# How the command line names what Python calls otherwise.
_OTHERWISE = {
    "limits": ("at_most", "at_least", "budget"),
    "features": ("columns", "ignore", "column", "text", "images", "gradients", "hidden"),
    "source": ("pool",),
}


def _flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, str]:
    """How the options of a command are written, by their names."""
    (commands,) = (each.choices for each in parser._actions if isinstance(each.choices, dict))
    (command,) = (each for each in commands.values() if each.get_default("run") is options.run)
    found: dict[str, str] = {}
    for each in command._actions:
        words = each.option_strings or [str(each.metavar)]
        found.setdefault(
            each.dest, [word for word in words if "--no-" not in word or len(words) == 1][-1]
        )
    for name, others in _OTHERWISE.items():
        known = [other for other in others if other in found]
        asked = [other for other in known if other in options]
        if known:
            found.setdefault(name, found[(asked or known)[0]])
    return found


def _left_behind(options: argparse.Namespace, noted: Noted) -> str:
    """What an interrupted command left behind."""
    if noted.completed:
        return f"the result is complete in {', '.join(map(printable, noted.completed))}"
    if options.run is verify.run:
        return "not all was checked"
    if options.run is certify.run:
        return f"no new bound was written, and {printable(options.folder)} stays as it was"
    output = vars(options).get("output") or vars(options).get("out")
    for kind, since in _SAVED.get(options.run, {}).items():
        if output is not None and next(Path(output).glob(kind), None) is not None:
            noted.saved = since
    if noted.saved:
        return f"the same command goes on from {noted.saved}"
    return "no result was written"


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="uniproto",
        description="Choose the k examples that, all with equal weight, best represent your data.",
        epilog="Start with 'uniproto demo'; 'uniproto select --help' explains the main command.",
    )
    parser.add_argument("--version", action="version", version=f"uniproto {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser


def _open_streams() -> None:
    """Let every command print: a closed stream swallows, an odd terminal does not spoil a result.

    A closed descriptor would otherwise be given to the next file that is opened, and what is meant
    for the terminal would end up in it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it stays open as long as we run
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _silence_output() -> None:
    """Give up on standard output, so that Python does not try once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
