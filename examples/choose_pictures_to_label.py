"""Which pictures should be labelled first, when there is money for 50 labels?

900 handwritten digits wait for labels. We choose 50 without looking at any label, have those
labelled, and let their nearest neighbour name 897 others.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

import uniproto

LABELS = 50

pictures, digits = load_digits(return_X_y=True)
waiting, unseen, answers, truth = train_test_split(
    pictures, digits, train_size=900, random_state=0, stratify=digits
)


def accuracy(rows):
    """Of a classifier that knows the labels of these rows only."""
    model = KNeighborsClassifier(1, metric="cosine").fit(waiting[rows], answers[rows])
    return model.score(unseen, truth)


chosen = uniproto.select(waiting, k=LABELS, certify=True)
random = [uniproto.select(waiting, k=LABELS, method="random", seed=s) for s in range(20)]

print(f"{LABELS} of {len(waiting)} pictures are labelled; {len(unseen)} new ones are recognised")
print(f"  chosen by uniproto   {accuracy(chosen.indices):.1%}")
by_chance = [accuracy(draw.indices) for draw in random]
print(f"  chosen at random     {np.mean(by_chance):.1%} ± {np.std(by_chance):.1%} (20 draws)")
print("Labelled pictures per digit:", np.bincount(answers[chosen.indices], minlength=10))
print("How far from the best choice there is?", chosen.certificate)
print("First to label: rows", ", ".join(map(str, chosen.indices[:8])))
