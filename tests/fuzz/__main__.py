"""The long run: `python -m tests.fuzz --cases 12000`.

Cases come in rounds. Each round has a seed and a process of its own, which is why one that hangs,
crashes or eats memory ends only itself. The seed of every round is printed: `--seed N --rounds 1`
runs one again, and `--seed N` goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

_HERE = Path(__file__).parent
_FACTOR = 4  # times the cases that every change runs
_CASES_OF_FACTOR_1 = 886  # what one round of factor 1 runs, tallied


def main() -> int:
    options = _options()
    total: Counter[str] = Counter()
    failed: list[int] = []
    begin, seed = time.monotonic(), options.seed
    while not _is_enough(options, total, seed):
        start = time.monotonic()
        status, tally, output = _round(seed, options.only)
        total += tally
        print(
            f"seed {seed}: {_cases(tally)} cases in {time.monotonic() - start:.0f} s, "
            f"{tally['answered']} answered, {tally['refused']} refused"
            + ("" if status == 0 else f"; FAILED (pytest says {status})"),
            flush=True,
        )
        if status != 0:
            print(output, flush=True)
            failed.append(seed)
        seed += 1
    print(
        f"{_cases(total)} cases in {time.monotonic() - begin:.0f} s: {total['answered']} answered, "
        f"{total['refused']} refused; {total['exact']} costs called exact, {total['proven']} rows "
        f"proven. Go on with: make fuzz SEED={seed}"
    )
    for broken in failed:
        print(f"Run it again with: python -m tests.fuzz --seed {broken} --rounds 1")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="run at least as many (10000)")
    parser.add_argument("--rounds", type=int, help="run as many rounds instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (1)")
    parser.add_argument("--only", default="", help="of the properties, those pytest -k finds")
    return parser.parse_args()


def _is_enough(options: argparse.Namespace, total: Counter[str], seed: int) -> bool:
    rounds = seed - options.seed
    if options.rounds is not None:
        return rounds >= options.rounds
    # A round that failed at once must not make the run endless.
    most = 2 + 2 * options.cases // (_FACTOR * _CASES_OF_FACTOR_1)
    return _cases(total) >= options.cases or rounds >= most


def _cases(tally: Counter[str]) -> int:
    return tally["answered"] + tally["refused"]


def _round(seed: int, only: str) -> tuple[int, Counter[str], str]:
    with tempfile.TemporaryDirectory() as folder:
        tally, hang = Path(folder) / "tally.json", Path(folder) / "hang.txt"
        run = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(_HERE)),
                *(f"--hypothesis-seed={seed}", "-k", only),
            ],
            env={
                **os.environ,
                "FUZZ_FACTOR": str(_FACTOR),
                "FUZZ_TALLY": str(tally),
                "FUZZ_HANG_FILE": str(hang),
            },
            cwd=_HERE.parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        counted: Counter[str] = (
            Counter(json.loads(tally.read_text())) if tally.exists() else Counter()
        )
        output = run.stdout[-20_000:] + (hang.read_text() if hang.exists() else "")
        return run.returncode, counted, output


if __name__ == "__main__":
    sys.exit(main())
