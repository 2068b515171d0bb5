"""Two processes train one model: each selects from its own pool, and all examples count equally."""

import json
import textwrap
from pathlib import Path

import pytest
import torch
from tests.lm.batches.test_selection_trainer import tiny_model
from tests.lm.torchrun import run_twice

# Starting the processes takes much longer than training: one start for all runs.
_PROGRAM = """
    import json, sys
    from pathlib import Path
    sys.path.insert(0, {root!r})
    from tests.lm.batches.test_example_loss import uneven
    from tests.lm.batches.test_selection_trainer import (
        examples, make, recorded, tiny_model, weights
    )
    from uniproto.lm.batches.trainer import leave_together

    def trained(name, *given, **options):
        out = Path(sys.argv[1]) / name
        trainer = make(out, *given, ddp_backend="gloo", ddp_find_unused_parameters=False, **options)
        seen = recorded(trainer)
        trainer.train()
        record = {{
            "selections": seen.selections,
            "batches": [
                [{{key: value.tolist() for key, value in b.items()}} for b in step]
                for step in seen.batches
            ],
            "weights": {{key: value.tolist() for key, value in weights(trainer.model).items()}},
            "logs": trainer.state.log_history,
        }}
        with open(f"{{out}}-{{trainer.args.process_index}}.json", "w") as file:
            json.dump(record, file)

    for method in ("uniproto", "random"):
        trained(
            method, tiny_model(lora=True), examples(count=96, uneven=True),
            selection={{"method": method}}, gradient_accumulation_steps=2, max_steps=2,
        )
    trained(
        "example", tiny_model(), uneven(96), selection={{"loss": "example", "adam_aligned": False}},
        max_steps=1, optim="sgd", learning_rate=0.5, max_grad_norm=0.0,
        lr_scheduler_type="constant",
    )
    leave_together()
    threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in threads if "gloo" in name], threads
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What both processes wrote of every run."""
    out = tmp_path_factory.mktemp("runs")
    script = out / "run.py"
    script.write_text(
        textwrap.dedent(_PROGRAM.format(root=str(Path(__file__).resolve().parents[3])))
    )
    run_twice(str(script), str(out))
    return out


def both(folder, name):
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["uniproto", "random"])
def test_every_process_selects_from_its_own_pool(folder, method):
    first, second = both(folder, method)
    assert first["weights"] == second["weights"]  # the replicas stayed one model
    assert first["batches"] != second["batches"]
    for record in (first, second):
        assert [len(rows) for step in record["selections"] for rows in step] == [5] * 4
    log = first["logs"][0]
    assert log["selection/kept"] == 20  # 2 processes × 2 micro-batches × 5
    assert log["selection/pool"] == 48
    assert log["loss"] == second["logs"][0]["loss"]


@pytest.mark.slow
def test_all_examples_of_all_processes_count_equally(folder):
    records = both(folder, "example")
    model, losses = tiny_model(), []
    for record in records:
        batch = {key: torch.tensor(value) for key, value in record["batches"][0][0].items()}
        for row in range(5):
            losses.append(model(**{key: value[row : row + 1] for key, value in batch.items()}).loss)
    torch.stack(losses).mean().backward()
    for name, parameter in model.named_parameters():
        expected = parameter.detach() - 0.5 * parameter.grad
        assert torch.allclose(torch.tensor(records[0]["weights"][name]), expected, atol=1e-6), name
