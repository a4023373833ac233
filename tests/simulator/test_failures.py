"""Machine failures from a file and at a seeded rate."""

from itertools import islice, pairwise
from math import inf
from pathlib import Path
from statistics import mean

import pytest

from dally.errors import InputError
from dally.testing.worlds import racks
from simulator.failures import Outage, random_outages, read_outages


def test_a_file_of_outages_is_read_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "failures.csv"
    path.write_text("machine,down_s,up_s\nr0m1,500,\nr0m0,10,20.5\n")
    assert read_outages(path, racks([[4, 4]])) == [Outage(10, 0, 20.5), Outage(500, 1, inf)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("machine,down_s\n", "columns must be machine, down_s, up_s"),
        ("machine,down_s,up_s\nghost,1,2\n", ":2: the cluster has no machine 'ghost'"),
        ("machine,down_s,up_s\nr0m0,soon,2\n", ":2: down_s and up_s must be numbers"),
        ("machine,down_s,up_s\nr0m0,1\n", ":2: down_s and up_s must be numbers"),
        ("machine,down_s,up_s\nr0m0,5,5\n", ":2: down_s 5 must be 0 or more and before up_s 5"),
        ("machine,down_s,up_s\nr0m0,-5,5\n", ":2: down_s -5 must be 0 or more"),
        ("machine,down_s,up_s\nr0m0,nan,5\n", ":2: down_s nan must be 0 or more"),
        ("machine,down_s,up_s\nr0m0,1,9\nr0m0,5,6\n", "machine r0m0 fails while it is down"),
    ],
)
def test_a_wrong_file_is_named_with_line_and_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "failures.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        read_outages(path, racks([[4]]))


def test_random_outages_come_at_the_rate_asked_for_and_by_time() -> None:
    outages = list(islice(random_outages(racks([[1] * 10]), mtbf_s=1000, repair_s=10, seed=1), 5000))
    assert [outage.down_s for outage in outages] == sorted(outage.down_s for outage in outages)
    assert all(outage.up_s - outage.down_s == pytest.approx(10) for outage in outages)
    gaps = [later.down_s - before.down_s for before, later in pairwise(outages)]
    assert mean(gaps) == pytest.approx(101, rel=0.05)


def test_the_seed_decides_the_outages() -> None:
    topology = racks([[4, 4]])
    first, again, other = (list(islice(random_outages(topology, 1e5, 1e3, seed), 20)) for seed in (1, 1, 2))
    assert first == again != other
