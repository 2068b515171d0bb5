"""A validation set that looks like production, so that its score is the score you will get.

A classifier learned from a good scanner. In production nine of ten pictures come from a scanner
that moves them by one pixel; of the labelled pool only three of ten do, and it is not known
which. 100 pictures of the pool are to say how good the classifier will be. Labels of production
are not needed: here they only tell what the truth was.

Prototypes are typical, and typical is easy, so a chosen set flatters the classifier by a few
points. Where production hardly differs from the pool, a random set tells the truth better.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import uniproto

SIZE, ROUNDS = 100, 5

clean, digits = load_digits(return_X_y=True)
moved = np.roll(clean.reshape(-1, 8, 8), 1, axis=2).reshape(clean.shape)
truths, accuracies_of, from_bad_scanner = [], {}, {}
for seed in range(ROUNDS):
    random = np.random.default_rng(seed)
    training, pool, production = np.split(random.permutation(len(digits)), [300, 1200])
    share = np.zeros(len(digits))
    share[pool], share[production] = 0.3, 0.9
    bad = random.random(len(digits)) < share
    pictures = np.where(bad[:, None], moved, clean)

    model = LogisticRegression(max_iter=5000).fit(pictures[training], digits[training])
    right = model.predict(pictures) == digits
    truths.append(right[production].mean())
    for method in ("uniproto", "random"):
        chosen = uniproto.select(
            pictures[pool], SIZE, target=pictures[production], method=method, seed=seed
        )
        rows = pool[chosen.indices]
        accuracies_of.setdefault(method, []).append(right[rows].mean())
        from_bad_scanner.setdefault(method, []).append(bad[rows].mean())

print(f"Accuracy in production is {np.mean(truths):.1%} (mean of {ROUNDS} rounds).")
print(f"What {SIZE} validation pictures say:")
for method, accuracies in accuracies_of.items():
    wrong = np.mean(np.abs(np.subtract(accuracies, truths))) * 100
    print(
        f"  chosen by {method:10}{np.mean(accuracies):.1%}, wrong by {wrong:.1f} points; "
        f"{np.mean(from_bad_scanner[method]):.0%} are from the bad scanner (production: 90%)"
    )
