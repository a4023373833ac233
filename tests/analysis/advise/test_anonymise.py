"""What leaves the site names nobody, the same one always alike, and is read back as the same jobs."""

from pathlib import Path

import pytest

from analysis.advise.history import read_history
from analysis.advise.naming import NamingRules, anonymise
from dally.errors import InputError
from tests.analysis.advise.histories import Row, read, written

ROWS = [
    Row(0, 5, 10, user="ann", account="vision", name="secret|plan", state="CANCELLED by 1007"),
    Row(1, 5, 10, user="bob", account="vision", name="bert-ft", nodes="n1"),
    Row(2, 5, 10, user="ann", account="language", name="secret|plan"),
]


def test_names_are_replaced_consistently(tmp_path: Path) -> None:
    target = tmp_path / "anonymous"
    assert anonymise(written(tmp_path, ROWS), target, NamingRules({"bert*": "bert-large"})) == (3, 0)
    text = target.read_text()
    assert not any(name in text for name in ("ann", "bob", "vision", "language", "secret", "bert-ft", "1007"))
    jobs = read_history(target).jobs
    assert [past.job.user for past in jobs] == ["user1", "user2", "user1"]
    assert [past.job.group for past in jobs] == ["account1", "account1", "account2"]
    assert [past.job.job_name for past in jobs] == ["name1", "bert-large", "name1"]


def test_times_sizes_and_nodes_stay(tmp_path: Path) -> None:
    target = tmp_path / "anonymous"
    before = read(tmp_path, ROWS).jobs
    anonymise(tmp_path / "jobs.sacct", target, NamingRules())
    after = read_history(target).jobs
    for one, other in zip(before, after, strict=True):
        assert (one.job.submit_s, one.start_s, one.job.gpus, one.job.duration_s, one.nodes) == (
            other.job.submit_s,
            other.start_s,
            other.job.gpus,
            other.job.duration_s,
            other.nodes,
        )


def test_other_columns_stay_at_home(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sacct"
    header, line = (
        "JobID|Comment|User|Submit|ElapsedRaw|State|ReqTRES",
        "7|to ann|ann|2026-01-01T00:00:00|9|F|",
    )
    path.write_text(f"{header}\n{line}gres/gpu=2\n7.batch{line[1:]}gres/gpu=2\n8{line[1:]}cpu=1\n")
    anonymise(path, tmp_path / "anonymous", NamingRules())
    assert (tmp_path / "anonymous").read_text() == (
        "JobIDRaw|User|Submit|ElapsedRaw|State|ReqTRES\n7|user1|2026-01-01T00:00:00|9|F|gres/gpu=2\n"
    )


def test_times_with_colons_stay_and_clusters_lose_their_names(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sacct"
    path.write_text(
        "JobID|Cluster|Submit|Elapsed|State|ReqTRES|Timelimit\n"
        "7|secret|2026-01-01T00:00:00|00:00:09|F|gres/gpu=2|1-00:00:00\n"
    )
    anonymise(path, tmp_path / "anonymous", NamingRules())
    assert (tmp_path / "anonymous").read_text() == (
        "JobIDRaw|Cluster|Submit|Elapsed|State|ReqTRES|Timelimit\n"
        "7|cluster1|2026-01-01T00:00:00|00:00:09|F|gres/gpu=2|1-00:00:00\n"
    )


def test_a_wrong_row_is_named_or_left_out_and_counted(tmp_path: Path) -> None:
    path, target = written(tmp_path, ROWS), tmp_path / "anonymous"
    path.write_text(f"{path.read_text()}9|too|few\n")
    with pytest.raises(InputError, match=r"line 5: "):
        anonymise(path, target, NamingRules())
    assert not target.exists()
    written_jobs, left_out = anonymise(path, target, NamingRules(), skip_bad=True)
    assert (written_jobs, left_out) == (len(target.read_text().splitlines()) - 1, 1)


def test_only_sacct_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,gpus,duration_s\na,0,1,5\n")
    with pytest.raises(InputError, match="only sacct's output is anonymised"):
        anonymise(path, tmp_path / "anonymous", NamingRules())
