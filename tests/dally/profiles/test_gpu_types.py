"""Names of GPU types, as Slurm and as CUDA write them."""

import pytest

from dally.profiles.gpu_types import TERAFLOPS, distance, same_type, slurm_type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("nvidia_a100-sxm4-80gb", "a100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA L40S", "l40s"),
        ("h100", "h100"),
    ],
)
def test_a_devices_name_tells_its_type(name: str, expected: str) -> None:
    assert slurm_type(name) == expected
    assert same_type(name, expected)


@pytest.mark.parametrize(
    "name",
    ["NVIDIA A100 80GB PCIe MIG 1g.10gb", "a100_1g.5gb", "NVIDIA GeForce RTX 3090", "v100-or-a100", "gpu"],
)
def test_a_part_of_a_gpu_and_names_that_tell_no_one_type_stay_as_they_are(name: str) -> None:
    assert slurm_type(name) == name
    assert not any(same_type(name, known) for known in TERAFLOPS)


def test_types_are_apart_by_their_speed_and_unknown_ones_infinitely() -> None:
    assert distance("h100", "a100") < distance("h100", "v100") < distance("h100", "k80")
    assert distance("h100", "mine") == float("inf")
