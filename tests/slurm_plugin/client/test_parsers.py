import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.client.job_json import count_gpus, read_jobs, read_tasks, read_tres
from slurm_plugin.client.job_text import shown_reason
from slurm_plugin.client.node_text import read_nodes, read_reservations
from slurm_plugin.client.scontrol import unavailable
from slurm_plugin.client.slurm import (
    Hold,
    SlurmJob,
    SlurmUnavailableError,
    State,
)

RECORDED = Path(__file__).parents[1] / "recorded"
VERSIONS = sorted(folder.name for folder in RECORDED.iterdir() if (folder / "squeue.json").exists())
META = {"22.05": {"Slurm": {"version": {"major": 22}}}, "24.11": {"slurm": {"version": {"major": "24"}}}}


def recorded(version: str, name: str) -> str:
    return (RECORDED / version / name).read_text(encoding="utf-8")


def by_name(version: str) -> dict[str, list[SlurmJob]]:
    """The recorded jobs by the names that they were submitted under."""
    document = json.loads(recorded(version, "squeue.json"))
    found: dict[str, list[SlurmJob]] = {}
    for record in document["jobs"]:
        found.setdefault(record["name"], []).extend(read_jobs(json.dumps({**document, "jobs": [record]})))
    return found


def one(version: str = "22.05", **fields: Any) -> SlurmJob:
    """The job in a record of these fields."""
    record = {"job_id": 7, "submit_time": 5, "job_state": "PENDING", **fields}
    (job,) = read_jobs(json.dumps({"meta": META[version], "jobs": [record]}))
    return job


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def jobs(version: str) -> dict[str, SlurmJob]:
    return {name: found[-1] for name, found in by_name(version).items()}


def test_every_recorded_job_has_a_state_of_ours(version: str) -> None:
    found = read_jobs(recorded(version, "squeue.json"))
    assert len(found) > 30
    assert Counter(job.state for job in found)[State.UNKNOWN] == 0


def test_recorded_jobs_come_by_submission_and_number(version: str) -> None:
    keys = [
        (job.submit_s, [int(part) for part in job.job_id.split("_")])
        for job in read_jobs(recorded(version, "squeue.json"))
    ]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("held", State.PENDING),
        ("running", State.RUNNING),
        ("suspended", State.SUSPENDED),
        ("completing", State.COMPLETING),
        ("completing-requeued", State.COMPLETING),
        ("requeued", State.PENDING),
        ("completed", State.ENDED),
        ("failed", State.ENDED),
        ("cancelled", State.ENDED),
        ("timeout", State.ENDED),
        ("node-fail", State.ENDED),
    ],
)
def test_recorded_states(jobs: dict[str, SlurmJob], name: str, state: State) -> None:
    assert jobs[name].state is state


@pytest.mark.parametrize(
    ("name", "hold"),
    [
        ("held", Hold.USER),
        ("requeued", Hold.USER),
        ("held-by-root", Hold.ADMIN),
        ("begin", Hold.NONE),
        ("dependency", Hold.NONE),
        ("resources", Hold.NONE),
        ("running", Hold.NONE),
    ],
)
def test_recorded_holds(jobs: dict[str, SlurmJob], name: str, hold: Hold) -> None:
    assert jobs[name].hold is hold


@pytest.mark.parametrize(
    ("shared", "alone"), [([], (False, False)), (["none"], (True, False)), (["topo"], (False, True))]
)
def test_what_a_job_shares_with_nobody_is_nodes_or_blocks(
    shared: list[str], alone: tuple[bool, bool]
) -> None:
    job = one("24.11", shared=shared)
    assert (job.exclusive, job.whole_blocks) == alone


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "held",
            {"min_nodes": 2, "tres_per_node": "gres:gpu:8", "time_limit_s": 3600, "gpus": {}, "nodes": ()},
        ),
        ("held", {"comment": "dally:model=vgg11&signal=USR1&tag=1f my words", "user": "dally-alice"}),
        ("held-no-requeue", {"requeue": False, "tres_per_node": "gres:gpu:h100:1", "time_limit_s": 5400}),
        ("gpus", {"tres_per_job": "gres:gpu:6", "tres_per_node": "", "min_nodes": 1}),
        ("gpus-typed", {"tres_per_job": "gres:gpu:h100:12", "min_nodes": 2}),
        ("gpus-per-task", {"tres_per_task": "gres:gpu:2", "tasks": 4, "tasks_per_node": None}),
        ("gpus-per-node", {"tres_per_node": "gres:gpu:h100:4", "tasks_per_node": 2, "tasks": 4}),
        ("gpus-per-socket", {"tres_per_socket": "gres:gpu:2"}),
        ("exclusive", {"exclusive": True}),
        ("constraint", {"exclusive": False, "features": "h100"}),
        ("nodelist", {"required_nodes": ("n1", "n3"), "excluded_nodes": ("n4", "n5", "n6")}),
        ("two-partitions", {"partition": "gpu,other"}),
        ("reservation", {"reservation": "active"}),
        ("begin", {"reason": "BeginTime", "start_s": None}),
        ("dependency", {"reason": "Dependency", "dependency": "afterok:2(unfulfilled)"}),
        ("het", {"heterogeneous": True}),
        (
            "running",
            {"heterogeneous": False, "reason": "", "gpus": {"n1": 2, "n2": 2}, "nodes": ("n1", "n2")},
        ),
        ("gpus-running", {"gpus": {"n1": 6, "n2": 5}}),
        ("no-gpu-running", {"gpus": {}, "nodes": ("n4",), "partition": "other"}),
        ("requeued", {"restarts": 1, "required_nodes": ("n4",), "nodes": (), "start_s": None}),
        ("failed", {"exit_code": 3, "state_name": "FAILED"}),
        ("timeout", {"state_name": "TIMEOUT", "reason": "TimeLimit"}),
    ],
)
def test_recorded_fields(jobs: dict[str, SlurmJob], name: str, fields: dict[str, object]) -> None:
    assert {field: getattr(jobs[name], field) for field in fields} == fields


def test_the_cpus_of_a_task_of_waiting_jobs_are_the_same_in_all_versions() -> None:
    earliest, *others = (
        {
            name: [job.cpus_per_task for job in jobs if job.state is State.PENDING]
            for name, jobs in found.items()
        }
        for found in map(by_name, VERSIONS)
    )
    assert others == [earliest] * len(others)
    assert earliest["constraint"] == [4]


def test_a_recorded_begin_is_after_its_submission(jobs: dict[str, SlurmJob]) -> None:
    assert 3500 < jobs["begin"].begin_s - jobs["begin"].submit_s < 3700


def test_text_of_users_comes_as_they_wrote_it(jobs: dict[str, SlurmJob]) -> None:
    (strange,) = [job for name, job in jobs.items() if "😀" in name]
    assert strange.comment == "a|b \"c\" 'd' $(e) `f` \\ %j é 😀 <g>\nsecond line\ttab"


def test_recorded_arrays_are_shown_task_by_task(version: str) -> None:
    names = by_name(version)
    held = names["array-held"]
    assert [job.job_id for job in held] == [f"{held[0].array_id}_{task}" for task in (1, 3, 4, 5)]
    assert {(job.array_throttle, job.hold) for job in held} == {(2, Hold.USER)}
    states = {job.job_id.split("_")[1]: job.state for job in names["array"]}
    assert states == {"1": State.PENDING, "3": State.RUNNING, "5": State.PENDING}


def test_recorded_errors_are_an_outage() -> None:
    with pytest.raises(SlurmUnavailableError, match="squeue: Failed while looking for jobs"):
        read_jobs(recorded("22.05", "squeue-down.json"))


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*/*down*.err")), ids=lambda path: path.name)
def test_recorded_messages_of_an_outage_are_known(path: Path) -> None:
    assert unavailable(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"jobs": null}', "slurm_load_jobs error", '{"jobs": {}}'])
def test_anything_but_a_list_of_jobs_is_an_outage(text: str) -> None:
    with pytest.raises(SlurmUnavailableError, match="squeue printed no"):
        read_jobs(text)


def test_an_empty_queue_is_empty() -> None:
    assert read_jobs('{"meta": {}, "errors": [], "jobs": []}') == ()


def test_a_job_without_a_number_does_not_hide_the_others() -> None:
    jobs = [{"job_id": "x"}, None, 3, {"job_id": 7}, {"job_id": {"number": 9}}, {"job_id": -1}]
    assert [job.job_id for job in read_jobs(json.dumps({"jobs": jobs}))] == ["7", "9"]


def test_a_state_of_a_newer_slurm_is_unknown() -> None:
    assert one(job_state="DREAMING").state is State.UNKNOWN


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["PENDING", "COMPLETING"], State.COMPLETING),
        (["RUNNING", "CONFIGURING"], State.RUNNING),
        (["CANCELLED"], State.ENDED),
        (["PENDING", "REQUEUED"], State.PENDING),
        ([], State.UNKNOWN),
    ],
)
def test_states_of_later_versions_are_lists(words: list[str], state: State) -> None:
    assert one("24.11", job_state=words).state is state


def test_numbers_of_later_versions_say_whether_they_are_set() -> None:
    number = {"set": True, "infinite": False, "number": 90}
    unset, infinite = {**number, "set": False}, {**number, "infinite": True}
    limits = [one("24.11", time_limit=value).time_limit_s for value in (number, unset, infinite)]
    assert limits == [5400, None, None]


def test_exit_codes_of_later_versions_are_tables() -> None:
    code = {"status": ["ERROR"], "return_code": {"set": True, "infinite": False, "number": 3}}
    killed = {"return_code": {"set": False, "number": 0}, "signal": {"id": {"set": True, "number": 9}}}
    assert (one("24.11", exit_code=code).exit_code, one("24.11", exit_code=killed).exit_code) == (3, 137)


def test_resources_of_later_versions_are_written_as_before() -> None:
    assert one("24.11", tres_per_node="gres/gpu:h100:2").tres_per_node == "gres:gpu:h100:2"


def test_an_ended_array_without_tasks_is_one_job() -> None:
    job = one(job_id=7, array_job_id=7, array_task_string="", job_state="CANCELLED")
    assert (job.job_id, job.array_id) == ("7", "7")


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("1,3-5%2", [1, 3, 4, 5]),
        ("0-9:4", [0, 4, 8]),
        ("[2-3]%1", [2, 3]),
        ("7", [7]),
        ("", []),
        ("1,x,5-...", [1]),
    ],
)
def test_task_lists(text: str, tasks: list[int]) -> None:
    assert list(read_tasks(text)) == tasks


@pytest.mark.slow
def test_an_array_of_a_hundred_thousand_tasks_is_read_within_seconds() -> None:
    start = time.process_time()
    record = {"job_id": 7, "array_job_id": 7, "array_task_id": None, "array_task_string": "0-99999%3"}
    assert len(read_jobs(json.dumps({"jobs": [record]}))) == 100_000
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:h100:8(IDX:0-7)", 8),
        ("gpu:4(S:0-1)", 4),
        ("gpu:a100:2(IDX:0,3),gpu:v100:1(IDX:4),shard:16", 3),
        ("gpu:h100:0(IDX:N/A)", 0),
        ("craynetwork:4,gpu:2", 2),
        ("(null)", 0),
    ],
)
def test_gpus_are_counted(gres: str, gpus: int) -> None:
    assert count_gpus(gres) == gpus


def test_gpus_come_in_the_order_of_the_nodes() -> None:
    job = one(
        job_state="RUNNING", nodes="n[2,10],a1", gres_detail=["gpu:1(IDX:0)", "gpu:h100:2(IDX:0-1)", "(null)"]
    )
    assert (job.nodes, job.gpus) == (("n2", "n10", "a1"), {"n2": 1, "n10": 2})


NODES = """\
NodeName=n1 Gres=gpu:h100:8 GresUsed=gpu:h100:3(IDX:0-2) OS=Linux 6 State=MIXED Partitions=gpu,other
NodeName=n2 Gres=gpu:h100:8(S:0-1) GresUsed=gpu:h100:0(IDX:N/A) State=IDLE+DRAIN Reason=a State=IDLE
NodeName=n3 Gres=(null) GresUsed=(null) State=IDLE Partitions=other
"""


def test_nodes_are_read() -> None:
    first, second, third = read_nodes(NODES)
    assert (first.name, first.gpus, first.gpus_used, first.partitions) == ("n1", 8, 3, ("gpu", "other"))
    assert (second.gpus, second.gpus_used, second.available, second.partitions) == (8, 0, False, ())
    assert second.state_name == "idle+drain"
    assert (third.gpus, third.gpus_used, third.available) == (0, 0, True)


@pytest.mark.parametrize(
    ("state", "available"),
    [
        ("IDLE", True),
        ("MIXED+PLANNED", True),
        ("ALLOCATED+COMPLETING", True),
        ("IDLE+RESERVED", True),
        ("MIXED+CLOUD", True),
        ("IDLE+DRAIN", False),
        ("IDLE*", False),
        ("IDLE+NOT_RESPONDING", False),
        ("DOWN+NOT_RESPONDING", False),
        ("MIXED+REBOOT_REQUESTED", False),
        ("MIXED+MAINTENANCE+RESERVED", False),
        ("DOWN", False),
        ("UNKNOWN", False),
        ("", False),
    ],
)
def test_nodes_on_which_slurm_starts_nothing_are_not_available(state: str, available: bool) -> None:
    (node,) = read_nodes(f"NodeName=n1 State={state}")
    assert node.available is available


def test_recorded_nodes(version: str) -> None:
    nodes = {node.name: node for node in read_nodes(recorded(version, "scontrol-node.txt"))}
    assert set(nodes) == {f"n{number}" for number in range(1, 11)}
    assert {node.gpus for node in nodes.values()} == {8}
    assert {name for name, node in nodes.items() if not node.available} >= {"n5", "n6", "n8"}
    assert nodes["n1"].available
    assert nodes["n1"].partitions == ("gpu", "other")


def test_recorded_reservations(version: str) -> None:
    found = {res.name: res.nodes for res in read_reservations(recorded(version, "scontrol-reservation.txt"))}
    assert found == {"active": ("n7",), "future": ("n1", "n2", "n3", "n7")}


def test_reservations_have_their_times() -> None:
    (found,) = read_reservations("ReservationName=r StartTime=100 EndTime=160 Duration=00:01:00 Nodes=n[1-2]")
    assert (found.nodes, found.start_s, found.end_s) == (("n1", "n2"), 100, 160)


def test_no_reservations_are_none() -> None:
    assert read_reservations("No reservations in the system\n") == ()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["RUNNING", "n[1-3]", "n[", "1-5%2", "gpu:8", 10**400, -5]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["set", "infinite", "number", "id", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
RECORDS = {version: json.loads(recorded(version, "squeue.json")) for version in VERSIONS}


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_fields_that_are_missing_or_odd_never_make_reading_fail(data: st.DataObject) -> None:
    document = RECORDS[data.draw(st.sampled_from(VERSIONS))]
    meta = data.draw(st.sampled_from([document["meta"], *META.values(), None, {}, {"Slurm": 3}]))
    record = dict(data.draw(st.sampled_from(document["jobs"])))
    for key in data.draw(st.lists(st.sampled_from(sorted(record)), max_size=8)):
        record.pop(key, None)
    record |= data.draw(st.dictionaries(st.sampled_from(sorted(record) or ["x"]), VALUES, max_size=8))
    untouched = {"job_id": 424242}
    found = read_jobs(json.dumps({"meta": meta, "jobs": [record, untouched]}))
    assert "424242" in [job.job_id for job in found]


@settings(max_examples=100, deadline=None)
@given(
    st.text()
    | st.lists(st.sampled_from(["NodeName=", "n1", " ", "=", "State=", "\n", "Nodes=n[", "]"])).map("".join)
)
def test_odd_text_never_makes_reading_nodes_or_reservations_fail(text: str) -> None:
    read_nodes(text)
    read_reservations(text)


def test_a_job_whose_reservation_is_over_is_held_by_slurm() -> None:
    assert shown_reason("Reservation mine was deleted") == ("ReservationDeleted", True)


def test_resources_are_read_as_accounting_counts_them() -> None:
    said = "cpu=16,mem=1600M,node=1,billing=16,gres/gpu=4,gres/gpu:a100=4,license/x=2"
    assert read_tres(said) == {"cpu": 16, "mem": 1600, "node": 1, "gres/gpu": 4, "gres/gpu:a100": 4}
    assert read_tres("mem=1.50T,cpu=1") == {"mem": 1.5 * 2**20, "cpu": 1}
    assert read_tres("") == {}
