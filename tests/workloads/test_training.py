"""One rank's training: every model trains, and gradients and losses are the global batch's."""

import json

import pytest
import torch

from dally.errors import InputError
from tests.workloads.average import after_steps, gradients
from tests.workloads.ranks import run
from tests.workloads.tiny import TINY
from workloads.group import Group
from workloads.registry import WORKLOADS
from workloads.settings import Backend, Precision, Settings
from workloads.training import Trainer

SMALL = {"bert-base": 8, "gpt2": 8, "chargpt": 8, "ncf": None}


@pytest.mark.parametrize("name", ["resnet18", "alexnet", "mobilenetv3", "gpt2", "resnet8", "chargpt", "ncf"])
def test_a_step_gives_every_parameter_a_gradient(name: str, alone: Group) -> None:
    trainer = Trainer(WORKLOADS[name], Settings(2, size=SMALL.get(name, 64)), alone)
    trainer.backward(trainer.forward(trainer.draw([0, 1])))
    assert all(parameter.grad is not None for parameter in trainer.module.parameters())


@pytest.mark.parametrize("precision", Precision)
def test_a_model_learns_its_samples_by_heart(precision: Precision, alone: Group) -> None:
    trainer = Trainer(TINY, Settings(3, precision), alone)
    losses = [trainer.train(step, range(3)).item() for step in range(50)]
    assert losses[-1] < losses[0] / 2


def test_gradients_stay_fp32_in_bf16(alone: Group) -> None:
    trainer = Trainer(TINY, Settings(2, Precision.BF16), alone)
    with torch.no_grad():
        exact = Trainer(TINY, Settings(2), alone).forward(trainer.draw([0, 1]))
    loss = trainer.forward(trainer.draw([0, 1]))
    trainer.backward(loss)
    assert loss != exact
    dtypes = {None if item.grad is None else item.grad.dtype for item in trainer.module.parameters()}
    assert dtypes == {torch.float32}


@pytest.mark.parametrize(("weights", "parts"), [((), [3, 2]), (("2", "1", "1"), [3, 1, 1])])
def test_uneven_shares_train_as_the_whole_batch_does(
    weights: tuple[str, ...], parts: list[int], alone: Group
) -> None:
    trainer = Trainer(TINY, Settings(5), alone)
    loss = trainer.forward(trainer.draw(range(5)))
    trainer.backward(loss)
    whole = gradients(trainer)
    trainer.module.zero_grad()
    ranks = [json.loads(rank.output) for rank in run(len(parts), "tests.workloads.average", "5", *weights)]
    assert sum(rank["loss"] for rank in ranks) / len(parts) == pytest.approx(loss.item())
    after = after_steps(trainer, range(5))
    for rank in ranks:
        assert rank["parts"] == parts
        assert rank["averaged"] == pytest.approx(whole)
        assert rank["own"] != pytest.approx(whole)
        assert rank["after"] == pytest.approx(after)


def test_dropout_depends_on_the_step_and_the_rank_alone(alone: Group) -> None:
    def dropped(step: int, rank: int) -> float:
        group = Group(rank, 1, alone.device, Backend.GLOO)
        trainer = Trainer(WORKLOADS["mobilenetv3"], Settings(2, size=64), group)
        return trainer.train(step, [0, 1]).item()

    assert dropped(3, 0) == dropped(3, 0)
    assert len({dropped(3, 0), dropped(4, 0), dropped(3, 1)}) == 3


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("resnet18", Settings(2), "global batch is 2, must be 4 or more: one for each rank"),
        ("resnet18", Settings(4, size=32), "size is 32 pixels, must be 64 or more"),
        ("gpt2", Settings(4, size=1025), "size is 1025 tokens, must be 1 to 1024"),
        ("ncf", Settings(4, size=8), "size is 8, but samples of ncf have one size only; leave it out"),
    ],
)
def test_settings_that_do_not_fit_are_refused(name: str, settings: Settings, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Trainer(WORKLOADS[name], settings, Group(0, 4, torch.device("cpu"), Backend.GLOO))
