"""Which nodes a job may use: by constraint, exclusion and partition, and by what CPUs and memory are left."""

import pytest

from dally.errors import InputError
from slurm_plugin.constraint import satisfies


@pytest.mark.parametrize(
    ("constraint", "met"),
    [
        ("a100", True),
        ("h100", False),
        ("a100&ib", True),
        ("a100,roce", False),
        ("h100|ib", True),
        ("h100|a100&roce", False),
        ("h100|(a100&ib)", True),
        ("(h100|a100)&(ib|roce)", True),
        (" a100 & ib ", True),
    ],
)
def test_a_constraint_is_met_by_the_features_of_a_node(constraint: str, met: bool) -> None:
    assert satisfies(constraint, frozenset({"a100", "ib"})) is met


@pytest.mark.parametrize("constraint", ["[rack1|rack2]", "ib*2", "a100&", "(a100", "a100)", "|", "()", ""])
def test_a_constraint_on_several_nodes_together_or_without_sense_is_refused(constraint: str) -> None:
    with pytest.raises(InputError, match="--constraint"):
        satisfies(constraint, frozenset({"a100"}))
