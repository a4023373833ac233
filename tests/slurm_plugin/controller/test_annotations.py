"""Why a job waits stands in its admin comment, and nothing that others wrote is lost."""

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.client.orders import Annotate
from slurm_plugin.client.scontrol import check
from slurm_plugin.controller.annotations import (
    ANNOTATED_AGAIN_S,
    MOST_ANNOTATED,
    SIGN,
    Annotations,
    annotated,
)
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.request import Request, decode_job, encode
from tests.slurm_plugin.worlds import FakeSite


def comments(site: FakeSite) -> dict[str, str]:
    return {job.job_id: job.admin_comment for job in site.slurm.jobs()}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "Dally: no GPUs"),
        ("Dally: older words", "Dally: no GPUs"),
        ("dally:model=vgg11", "dally:model=vgg11 Dally: no GPUs"),
        ("dally:model=vgg11 Dally: older words", "dally:model=vgg11 Dally: no GPUs"),
        ("see ticket 17", "see ticket 17"),
        ("dally:model=vgg11 see ticket 17", "dally:model=vgg11 see ticket 17"),
    ],
)
def test_our_words_replace_ours_only(before: str, after: str) -> None:
    assert annotated(before, "no GPUs") == after
    assert annotated(after, "no GPUs") == after


def test_the_mark_stays_readable() -> None:
    request = Request(model="vgg11", grace_s=5)
    assert decode_job("", annotated(encode(request), "held=1 & no=GPUs")) == request


def test_a_waiting_job_says_why_and_a_running_one_nothing(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    first = site.submit(gpus_per_node=8, nodes=4, run_time_s=200.0)
    second = site.submit(gpus_per_node=8)
    site.run_to(30.0)
    assert comments(site)[first] == ""
    assert comments(site)[second] == SIGN + site.managed(second).phase.reason
    site.run_to(200.0 + 2 * ANNOTATED_AGAIN_S)
    assert comments(site) == {first: "", second: ""}


def test_words_change_at_most_once_a_minute_and_only_where_they_differ(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(gpus_per_node=8, nodes=4)
    waits = site.submit(gpus_per_node=8)
    site.run_to(30.0)
    managed = site.managed(waits)
    managed.phase = replace(managed.phase, reason="something else")
    before = comments(site)[waits]
    site.run_to(50.0)
    assert comments(site)[waits] == before != f"{SIGN}something else"
    site.run_to(50.0 + ANNOTATED_AGAIN_S)
    assert comments(site)[waits] == f"{SIGN}something else"


def test_few_jobs_are_told_in_one_cycle_and_all_in_some(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    jobs = [site.submit(gpus_per_node=8, nodes=4) for _ in range(2 * MOST_ANNOTATED)]
    site.controller.cycle()
    assert len([each for each in comments(site).values() if each]) <= MOST_ANNOTATED
    site.run_to(300.0)
    assert all(comments(site)[job] for job in jobs[1:])


def test_tasks_of_arrays_are_left_together(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.submit(gpus_per_node=8, nodes=4, array=(0, 1, 2))
    site.run_to(30.0)
    assert set(comments(site).values()) == {""}


def test_a_shadow_writes_nothing(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, mode=ControllerMode(shadow=True))
    site.slurm.breaks_after = 0
    site.submit(gpus_per_node=8, nodes=4)
    site.submit(gpus_per_node=8, nodes=4)
    site.run_to(30.0)
    assert set(comments(site).values()) == {""}


def test_words_of_one_user_do_not_end_the_annotations_of_all(tmp_path: Path) -> None:
    annotations, job = Annotations(lambda now, event, **said: events.append(event)), Annotate("17", "x")
    events: list[str] = []
    annotations.answered([job], ["'dally:progress=%2Fdenied' is no comment in plain characters"], 1.0)
    assert not events
    annotations.answered([job], ["Access/permission denied"], 2.0)
    assert events == ["annotations_refused"]


def test_the_longest_mark_still_has_room_for_words() -> None:
    request = Request(nodes="n[1-2]," * 146, progress="/" + "é" * 255)
    check(Annotate("17", annotated(encode(request), "no GPUs")))


def test_where_slurm_does_not_let_us_it_is_told_once(tmp_path: Path) -> None:
    site = FakeSite(tmp_path)
    site.slurm.may_annotate = False
    site.submit(gpus_per_node=8, nodes=4)
    waits = site.submit(gpus_per_node=8)
    site.run_to(300.0)
    assert comments(site)[waits] == ""
    assert len(site.events("annotations_refused")) == 1
