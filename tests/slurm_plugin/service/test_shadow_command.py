import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.service.shadow_command import command, table
from slurm_plugin.service.shadow_report import SAME_S, shadow_rows
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

ALICE, BOB = ("alice", "physics"), ("bob", "")


def submit(t: float, job: str, payer: tuple[str, str] = ALICE) -> dict[str, Any]:
    return {"t": t, "event": "submit", "job": job, "user": payer[0], "account": payer[1]}


def event(t: float, kind: str, job: str) -> dict[str, Any]:
    return {"t": t, "event": kind, "job": job}


def test_a_start_is_earlier_later_or_the_same() -> None:
    events = [
        *(submit(0, job) for job in ("1", "2", "3", "4")),
        event(10, "would_start", "1"),
        event(20, "would_start", "2"),
        event(20 + SAME_S, "start", "2"),
        event(200, "start", "3"),
        event(1010, "start", "1"),
        event(1020, "would_start", "4"),
    ]
    row = shadow_rows(events, 9999.0)[ALICE]
    assert (row.jobs, row.earlier, row.same, row.later) == (4, 2, 1, 1)
    assert row.gained_s == [1000]
    assert sorted(row.waits_s) == [20 + SAME_S, 200, 1010]


def test_a_job_that_was_cancelled_before_it_started_is_neither_earlier_nor_later() -> None:
    events = [submit(0, "1"), event(10, "would_start", "1"), event(500, "end", "1")]
    row = shadow_rows(events, 9999.0)[ALICE]
    assert (row.jobs, row.earlier, row.same, row.later) == (1, 0, 0, 0)


def test_jobs_stopped_and_moved_are_counted_for_those_that_they_belong_to() -> None:
    events = [submit(0, "1"), submit(0, "2", BOB), event(1, "start", "1"), event(9, "would_preempt", "1")]
    events += [
        event(20, "would_preempt", "1"),
        event(30, "would_migrate", "2"),
        event(40, "would_start", "9"),
    ]
    rows = shadow_rows(events, 50.0)
    assert (rows[ALICE].preemptions, rows[ALICE].migrations) == (2, 0)
    assert (rows[BOB].preemptions, rows[BOB].migrations) == (0, 1)
    assert [*table(rows)][-1].split()[:3] == ["all", "-", "2"]


def test_a_number_given_twice_is_two_jobs() -> None:
    events = [submit(0, "1"), event(5, "start", "1"), submit(100, "1", BOB), event(109, "start", "1")]
    rows = shadow_rows(events, 200.0)
    assert (rows[ALICE].waits_s, rows[BOB].waits_s) == ([5], [9])


def shadow(folder: Path) -> Result:
    config = folder / "dally.toml"
    config.write_text(f'partitions = ["gpu"]\ncluster = "{folder}"\nstate_dir = "{folder}"\n')
    return CliRunner().invoke(command, ["--config", str(config), "--json"])


def test_a_shadow_s_journal_is_told_by_user_and_account(tmp_path: Path) -> None:
    site = FakeSite(tmp_path / "shadow", mode=ControllerMode(shadow=True))
    site.slurm.start_delay_s = 600.0
    spec = SubmitSpec(held=False, gpus_per_node=8, run_time_s=60.0, user="alice", account="physics")
    site.slurm.submit(spec)
    site.live(2000.0)
    said = json.loads(shadow(tmp_path).output)
    (row,) = said["rows"]
    assert (row["user"], row["account"], row["jobs"], row["earlier"]) == ("alice", "physics", 1, 1)
    assert row["mean_gained_s"] > SAME_S
    assert said["total"]["earlier"] == 1


def test_without_a_shadow_it_says_what_to_do(tmp_path: Path) -> None:
    done = shadow(tmp_path)
    assert done.exit_code != 0
    assert "dally controller --shadow" in str(done.exception)
