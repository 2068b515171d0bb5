"""The command line: one file per command, heavy imports only when a command runs."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from uniproto.cli import (
    certify,
    compare,
    demo,
    embed,
    evaluate,
    experiment,
    finetune,
    path,
    pretrain,
    report,
    select,
    verify,
)
from uniproto.errors import UniprotoError
from uniproto.version import __version__

_COMMANDS = (
    demo,
    embed,
    select,
    compare,
    path,
    certify,
    verify,
    report,
    experiment,
    finetune,
    evaluate,
    pretrain,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Errors are one message, without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # an odd terminal must not spoil a good result
        sys.stdout.reconfigure(errors="backslashreplace")
    options = build_parser().parse_args(arguments)
    try:
        status: int | None = options.run(options)
        sys.stdout.flush()
    except UniprotoError as error:
        print(f"uniproto: error: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"uniproto: error: Not enough memory ({error}). Use fewer rows.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("uniproto: interrupted; no result was written.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, for example `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status or 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="uniproto",
        description="Choose the k examples that, all counting equally, stand best for your data.",
        epilog="Start with 'uniproto demo'; 'uniproto select --help' explains the main command.",
    )
    parser.add_argument("--version", action="version", version=f"uniproto {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser
