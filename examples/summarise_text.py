"""Ten sentences that stand for a whole library's documentation.

The texts are the first sentences of the documentation of functions in Python's standard library.
Each becomes a vector by all-MiniLM-L6-v2, which comes with `pip install '.[text]'`.
"""

import inspect
from importlib import import_module

import numpy as np

import uniproto
from uniproto.features import embed_text

MODULES = "calendar csv datetime difflib email.utils random shutil sqlite3 statistics zipfile"
K = 10

texts, modules = [], []
for name in MODULES.split():
    for own, thing in inspect.getmembers(import_module(name), inspect.isroutine):
        first = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
        if 30 < len(first) < 200 and not own.startswith("_"):
            texts.append(first)
            modules.append(name)
texts, rows = np.unique(texts, return_index=True)
modules = np.array(modules)[rows]

vectors = embed_text(texts.tolist()).vectors
chosen = uniproto.select(vectors, k=K)
draws = [uniproto.select(vectors, k=K, method="random", seed=seed) for seed in range(20)]

print(f"{K} of {len(texts)} sentences, each standing for {len(texts) / K:.0f} of them:")
for place, row in enumerate(chosen.indices):
    stands_for = modules[chosen.plan[[place]].indices]
    kinds, counts = np.unique(stands_for, return_counts=True)
    print(f"  {texts[row][:70]:70}  mostly {kinds[counts.argmax()]}")
by_chance = np.mean([draw.cost for draw in draws])
print("Distance from a sentence to the one that stands for it, on average")
print(f"  chosen by uniproto   {chosen.cost:.3f}")
print(f"  chosen at random     {by_chance:.3f} (20 draws)")
