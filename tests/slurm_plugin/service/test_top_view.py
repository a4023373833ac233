"""What `dally top` shows, at several sizes of terminal and queue."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.service.top_view import ControllerView, screen, shared_rows
from tests.slurm_plugin.service.pictures import NOW_S, job, picture


def lines(shown: ControllerView, width: int = 80, height: int | None = 24) -> list[str]:
    return screen(shown, NOW_S, width, height).plain.split("\n")


@pytest.mark.parametrize("pending", [0, 5, 5000])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (40, 10), (10, 3)])
def test_it_fits_the_terminal(pending: int, width: int, height: int) -> None:
    shown = picture(pending, running=40, ineligible=20, problems=[problem(text="x" * 300)])
    found = lines(shown, width, height)
    assert len(found) <= height
    assert max(map(len, found)) <= width


def problem(text: str, age_s: float = 60.0) -> dict[str, object]:
    return {"t": time.time() - age_s, "event": "slurm_unavailable", "reason": text}


def test_an_idle_cluster_is_a_few_lines() -> None:
    found = lines(picture(0))
    assert found[0].startswith("dally 0.2.0, normal mode, well ")
    assert found[1] == "cycle   2s ago, took 0.05 s; dally"
    assert found[2] == f"GPUs    0 of 64 used, 64 free, 0 unavailable, 8 nodes [{'.' * 24}]"
    assert found[3] == "free    at most 8 in one machine, 16 in one rack"
    assert found[4] == "jobs    none"
    assert found[5] == "timers  1 GPU: machine 2m, rack 1h00m; 8 GPUs: machine 2m, rack 1h00m; 16 GPUs:+"
    assert [line.split() for line in found[6:]] == [
        ["JOBID", "USER", "MODEL", "GPUS", "STATE", "FOR", "TIMER", "NODES", "or", "REASON"]
    ]


def test_a_short_queue_is_shown_whole_with_its_reasons() -> None:
    found = lines(picture(5, running=3))
    assert found[6] == "reasons 5 x no machine has 6 to 8 free GPUs"
    assert [line.split()[0] for line in found[8:]] == ["1", "2", "3", "4", "5", "1", "2", "3"]
    assert found[8].split()[3:8] == ["8", "pending", "61s", "rack", "9m"]
    assert found[13].split()[3:] == ["8", "running", "61s", "-", "n7"]


def test_of_a_long_queue_the_first_are_shown_and_the_others_counted() -> None:
    found = lines(picture(5000, running=40, ineligible=20))
    told = [line for line in found if line.startswith("...")]
    assert [line.split(maxsplit=1)[1].rpartition(" ")[2] for line in told] == [
        "pending",
        "ineligible",
        "running",
    ]
    assert len(found) == 24
    shown = sum(line.split()[4:5] == ["pending"] for line in found)
    assert told[0] == f"... {5000 - shown:,} more pending"
    assert shown >= 6


def test_a_large_terminal_has_all_timers_and_more_jobs() -> None:
    found = lines(picture(5000, running=40), 200, 50)
    assert [line for line in found if "GPUs: machine" in line] == [
        "        8 GPUs: machine 2m, rack 1h00m",
        "        16 GPUs: machine 2m, rack 1h00m",
    ]
    assert sum(" pending " in line for line in found) > 20
    assert any(line.endswith("no machine has 7 free GPUs; declines farther ones") for line in found)


def test_reasons_that_differ_in_numbers_alone_count_together() -> None:
    jobs = [
        job(1, "pending", reason="no rack has 16 free GPUs; x"),
        job(2, "pending", reason="3 GPUs are before it"),
        job(3, "pending", reason="41.5 GPUs are before it"),
    ]
    found = lines(replace(picture(0), jobs=jobs))
    assert found[6:8] == ["reasons 2 x 3 to 41.5 GPUs are before it", "        1 x no rack has 16 free GPUs"]


def test_a_controller_that_is_not_well_says_why_in_the_first_line() -> None:
    found = lines(picture(5, healthy=False, reason="the last good cycle was 130 s ago"))
    assert found[0].startswith("dally 0.2.0, normal mode, NOT WELL: the last good cycle was 130 s ago ")


def test_problems_of_the_last_day_are_shown_the_latest_first() -> None:
    old, one, two = problem("old", 90_000.0), problem("one", 600.0), problem("two\x1b[2J")
    found = lines(picture(0, problems=[old, one, two]))
    told = [line.rpartition("slurm_unavailable: ")[2] for line in found if line.startswith("problem")]
    assert told == ["two?[2J", "one"]


def test_before_the_first_good_cycle_there_is_health_alone() -> None:
    status = {key: picture(0).status[key] for key in ("mode", "version", "problems", "age_s")}
    found = lines(ControllerView({**status, "healthy": False, "reason": "no cycle has gone well yet"}))
    assert len(found) == 1
    assert "NOT WELL: no cycle has gone well yet" in found[0]


def test_without_an_answer_the_last_one_stays_and_is_said_to_be_old() -> None:
    nobody = "no controller answers at http://head:9341: Connection refused"
    assert lines(ControllerView({}, trouble=nobody)) == [nobody, "Trying again."]
    found = lines(replace(picture(5), trouble=nobody))
    assert found[:2] == [nobody, "Trying again. What follows was said 1s ago."]
    assert found[2].startswith("dally 0.2.0")
    assert lines(ControllerView({}, trouble="one two"), 5) == ["one", "two", "Tryi+"]


def test_reasons_of_another_form_are_told_apart() -> None:
    jobs = [job(number, "pending", reason=why) for number, why in enumerate(["a 1b2", "a 12b"])]
    assert lines(replace(picture(0), jobs=jobs))[6:8] == ["reasons 1 x a 1b2", "        1 x a 12b"]


@given(
    st.dictionaries(st.sampled_from(["pending", "running", "ineligible", "released"]), st.integers(1, 50)),
    st.integers(-5, 60),
)
def test_rows_are_shared_and_none_is_wasted(sizes: dict[str, int], rows: int) -> None:
    given_rows = shared_rows(sizes, rows)
    assert sum(given_rows.values()) == min(max(rows, 0), sum(sizes.values()))
    assert all(0 < count <= sizes[group] for group, count in given_rows.items())


def test_rows_are_shared_by_weight() -> None:
    assert shared_rows({"pending": 5000, "ineligible": 20, "running": 2}, 12) == {
        "pending": 7,
        "ineligible": 3,
        "running": 2,
    }
