"""`uniproto demo`: every step on a data set everyone has."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.cli.parser import add_output
from uniproto.errors import printable
from uniproto.report import PAGE
from uniproto.select import select

_FOLDER = "uniproto-demo"
_RANDOM_DRAWS = 10


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="see it work on handwritten digits",
        description="Select prototypes of scikit-learn's handwritten digits (1,797 images of 8 x 8 "
        "pixels), compare them with random choices, prove how good they are, and write the result "
        "and a page about it to a folder. Compiles what later commands need, once per machine.",
    )
    parser.add_argument("-k", type=int, default=50, help="how many prototypes (default: 50)")
    add_output(parser, default=_FOLDER)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(output=_FOLDER, run=run)


def run(options: argparse.Namespace) -> None:
    from sklearn.datasets import load_digits

    from uniproto.selection.storage import require_result_folder

    output = Path(options.output)
    require_result_folder(output)
    images, labels = load_digits(return_X_y=True)
    shown = False if options.quiet else None
    selection = select(images, k=options.k, progress=shown)
    random_costs = [
        select(images, k=options.k, method="random", seed=seed, progress=shown).cost
        for seed in range(_RANDOM_DRAWS)
    ]
    certificate = selection.certify(progress=shown)
    selection.save(output)
    page = selection.report(
        output / PAGE,
        labels=labels,
        images=images.reshape(-1, 8, 8),
        title="Handwritten digits",
    )
    mean, spread = np.mean(random_costs), np.std(random_costs)
    print(f"Handwritten digits: {len(images):,} images, {options.k} prototypes, cosine cost\n")
    print(f"{'':28}optimal-transport cost")
    print(f"{'uniproto':28}{selection.cost:.4f}")
    print(f"{f'random ({_RANDOM_DRAWS} draws)':28}{mean:.4f} ± {spread:.4f}")
    print(f"{'no choice can be below':28}{certificate.lower_bound:.4f}")
    print(f"{'':28}{1 - selection.cost / mean:.1%} below random\n")
    print(f"{'digit':>8}{'share of data':>16}{'of prototypes':>16}{'prototypes':>13}")
    for digit in range(10):
        count = int((labels[selection.indices] == digit).sum())
        print(f"{digit:>8}{(labels == digit).mean():>16.1%}{count / options.k:>16.1%}{count:>13}")
    print(f"\nThe selection is in {printable(output.resolve())}")
    print(f"The page to look at:   {page.resolve().as_uri()}")
    print("Next: uniproto select --help")
