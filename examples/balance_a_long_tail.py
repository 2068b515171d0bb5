"""Rare kinds get lost in a summary. Three ways to keep them.

Digits 0 to 4 are common here, digits 5 to 9 rare (8 pictures each). 40 prototypes are chosen, and
each picture of a balanced test set is named by its nearest prototype.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

import uniproto

K, RARE, RARE_PICTURES = 40, 5, 8

pictures, digits = load_digits(return_X_y=True)
pictures, test, digits, truth = train_test_split(
    pictures, digits, test_size=0.4, random_state=0, stratify=digits
)
rank_in_class = np.array([np.sum(digits[:row] == digit) for row, digit in enumerate(digits)])
kept = (digits < RARE) | (rank_in_class < RARE_PICTURES)
pictures, digits = pictures[kept], digits[kept]

questions = {
    "plain": {},
    "density weights (no labels)": {"target_weights": uniproto.Density()},
    "balanced weights (labels)": {"target_weights": uniproto.Balanced(digits)},
    "a budget per class (labels)": {"groups": uniproto.Groups(digits, budgets="balanced")},
    "random": {"method": "random"},
}
print(f"{len(digits)} pictures, {np.mean(digits >= RARE):.0%} of them of the rare digits 5 to 9")
print(f"{'':30}rare prototypes   accuracy: rare   common")
for name, question in questions.items():
    seeds = range(10) if name == "random" else range(1)
    rows = [uniproto.select(pictures, K, seed=seed, **question).indices for seed in seeds]
    models = [KNeighborsClassifier(1, metric="cosine").fit(pictures[r], digits[r]) for r in rows]
    right = np.mean([model.predict(test) == truth for model in models], axis=0)
    prototypes = np.mean([digits[chosen] >= RARE for chosen in rows]) * K
    print(
        f"{name:30}{prototypes:8.1f} of {K}{right[truth >= RARE].mean():17.1%}"
        f"{right[truth < RARE].mean():9.1%}"
    )
