"""The registry tells the truth about the models, and needs no torch for it."""

import subprocess
import sys

import pytest
import torch

from dally.errors import InputError
from dally.profiles.files import load_profiles
from tests.patience import LONGEST_S
from workloads.registry import WORKLOADS, ModelRecipe, find_workload
from workloads.task import make_task


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_params_are_those_of_the_model_that_is_built(workload: ModelRecipe) -> None:
    with torch.device("meta"):
        module = make_task(workload).build()
    assert sum(parameter.numel() for parameter in module.parameters()) == workload.params


@pytest.mark.parametrize("name", sorted(set(WORKLOADS) & set(load_profiles("realistic").models)))
def test_a_model_is_the_one_that_the_shipped_profiles_have(name: str) -> None:
    profile = load_profiles("realistic").find(name)
    assert profile
    shipped = profile.model.params, profile.model.grad_bytes, profile.model.optimizer
    assert shipped == (WORKLOADS[name].params, WORKLOADS[name].grad_bytes, WORKLOADS[name].optimizer)


def test_an_unknown_model_is_told_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"^unknown model vgg19; valid: resnet18, .*, ncf$"):
        find_workload("vgg19")


def test_neither_the_registry_nor_the_command_line_loads_torch() -> None:
    code = "import sys, workloads.registry, workloads.train; print('torch' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LONGEST_S
    )
    assert ran.stdout == "False\n"
