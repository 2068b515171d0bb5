"""The process that looks for programs and answers in what models wrote.

It is run as a script, apart from the program that judges, so that it can be stopped. Nothing it
reads is run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Answer requests ``[reader, arguments, named arguments]`` until the input ends."""
    from uniproto.judging.answers import extract_answer, program_answer
    from uniproto.judging.answers.programs import extract_program

    readers = {each.__name__: each for each in (extract_answer, extract_program, program_answer)}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        reader, arguments, named = json.loads(line)
        print(json.dumps(readers[reader](*arguments, **named)), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))  # where this package is, installed or not
    main()
