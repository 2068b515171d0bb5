"""Any cost will do: hand over a matrix. Here: search queries compared by their spelling.

240 queries are misspelt versions of twelve words. The cost of letting one query stand for another
is the number of letters to change. No vector and no training is needed.
"""

import numpy as np

import uniproto

WORDS = ["keyboard", "monitor", "printer", "headphones", "charger", "router", "tripod"]
WORDS += ["microphone", "projector", "scanner", "notebook", "calculator"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def misspelt(word, random):
    """One or two letters wrong, missing or doubled."""
    for _ in range(random.integers(1, 3)):
        place = int(random.integers(len(word)))
        middle = ("", word[place] * 2, LETTERS[random.integers(26)])[random.integers(3)]
        word = word[:place] + middle + word[place + 1 :]
    return word


def edits(a, b):
    """Letters to insert, delete or replace to turn a into b (Levenshtein's distance)."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != other))
    return row[-1]


random = np.random.default_rng(0)
meant = np.repeat(WORDS, 20)
queries = [misspelt(word, random) for word in meant]
costs = np.array([[edits(a, b) for b in queries] for a in queries], float)

chosen = uniproto.select(costs, k=12, metric="precomputed", certify=True)
draws = [
    uniproto.select(costs, k=12, metric="precomputed", method="random", seed=s) for s in range(20)
]
print(f"12 of {len(queries)} queries:", ", ".join(queries[row] for row in chosen.indices))
print(f"{'':10}letters to change, on average   words found, of {len(WORDS)}")
for name, answers in {"uniproto": [chosen], "random": draws}.items():
    letters = np.mean([answer.cost for answer in answers])
    found = np.mean([len(set(meant[answer.indices])) for answer in answers])
    print(f"{name:10}{letters:12.2f}{found:34.1f}")
print("How far from the best choice there is?", chosen.certificate)
