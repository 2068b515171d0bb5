"""Every chosen example counts equally, whatever its length, batch, pass or process."""

import pytest
import torch
from tests.lm.batches.test_selection_trainer import (
    collate,
    examples,
    losses_logged,
    make,
    recorded,
    tiny_model,
    weights,
)
from tests.refusals import refused

from uniproto.errors import InvalidInputError
from uniproto.lm import SelectionConfig, SelectionTrainer

pytestmark = [pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")]


def uneven(count=48):
    """Answers of 1 to 11 tokens: by tokens, some would count eleven times as much as others."""
    rows = examples(count, uneven=True)
    for number, row in enumerate(rows):
        length = len(row["labels"])
        answer = 1 + number % (length - 1)
        row["labels"] = [-100] * (length - answer) + row["input_ids"][length - answer :]
    return rows


def test_the_default_is_example_with_uniproto_and_token_otherwise():
    assert SelectionConfig().usual_loss == "example"
    assert SelectionConfig(method="colm").usual_loss == "token"
    assert SelectionConfig(method="random", loss="example").usual_loss == "example"
    with refused("loss", InvalidInputError):
        SelectionConfig(loss="sentence")


@pytest.mark.parametrize("micro_batch", [None, 2])
@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_step_follows_the_mean_of_the_examples_gradients(tmp_path, accumulated, micro_batch):
    """Plain SGD: the change of the weights is the gradient, to be compared with a loop's."""
    options = {
        "gradient_accumulation_steps": accumulated,
        "max_steps": 1,
        "optim": "sgd",
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
    }
    selection = {"adam_aligned": False, "loss": "example", "micro_batch": micro_batch}
    trainer = make(tmp_path, tiny_model(), uneven(), selection=selection, **options)
    seen = recorded(trainer)
    trainer.train()
    model = tiny_model()
    losses = []
    for batch in seen.batches[0]:
        for row in range(len(batch["labels"])):
            losses.append(model(**{key: value[row : row + 1] for key, value in batch.items()}).loss)
    assert len(losses) == 5 * accumulated
    mean = torch.stack(losses).mean()
    mean.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.5 * parameter.grad
    expected, found = weights(model), weights(trainer.model)
    for name in expected:
        assert torch.allclose(found[name], expected[name], atol=1e-6), name
    assert losses_logged(trainer)[0] == pytest.approx(float(mean.detach()), rel=1e-4)


def test_evaluation_keeps_the_loss_of_the_model(tmp_path):
    trainer = make(tmp_path, data=uneven(), max_steps=1)
    trainer.train()
    trainer.eval_dataset = uneven(6)
    model, batch = trainer.model.eval(), collate(uneven(6))
    with torch.no_grad():
        expected = float(model(**batch).loss)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"label_smoothing_factor": 0.1}, "label_smoothing_factor")],
)
def test_what_the_loss_would_replace_is_refused(tmp_path, settings, words):
    with pytest.raises(InvalidInputError, match=rf"{words}\. Pass SelectionConfig"):
        make(tmp_path, **settings)
    make(tmp_path, selection={"loss": "token"}, max_steps=1, **settings).train()


@pytest.mark.slow
def test_a_trainer_that_ignores_the_loss_is_refused(tmp_path):
    class Own(SelectionTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs).loss

    with refused("loss", InvalidInputError):
        make(tmp_path, base=Own).train()
    make(tmp_path, base=Own, selection={"loss": "token"}, max_steps=1).train()
