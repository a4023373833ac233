import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_plugin.client.command_line import CommandLine, json_option
from slurm_plugin.client.orders import Order, Rehold, ReleaseOnNodes, ReleaseToSlurm, Requeue, Reserve, Signal
from slurm_plugin.client.slurm import SlurmUnavailableError, State
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.dally.hosts.waits import await_gone
from tests.patience import wait_until

SCONTROL = """
while read -r line; do
  case "$line" in
    end-of-order-*) echo "invalid keyword: $line" >&2 ;;
    *JobId=13*|*" 13") echo "{line}" >> said; echo "Invalid job id specified for job 13" >&2 ;;
    *) echo "$line" >> said ;;
  esac
done
exit 1
"""


NO_JOBS = """case "$*" in *--json*) echo '{"jobs": []}' ;; esac"""


def commands(folder: Path, timeout_s: float = 10.0, **scripts: str) -> CommandLine:
    """Commands that are shell scripts, run in a folder of their own."""
    for name, script in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
        path.chmod(0o755)
    return CommandLine({"PATH": f"{folder}:{os.environ['PATH']}"}, timeout_s=timeout_s)


def said_to_scontrol(folder: Path, orders: Sequence[Order]) -> list[str]:
    commands(folder, scontrol=SCONTROL).run(orders)
    return (folder / "said").read_text().splitlines()


def test_the_reservation_that_a_job_asked_for_stays(tmp_path: Path) -> None:
    orders: list[Order] = [Rehold("7", keep_reservation=True), ReleaseToSlurm("8", 1, keep_reservation=True)]
    assert said_to_scontrol(tmp_path, orders) == [
        "uhold 7",
        "update JobId=7 StartTime=now NodeList=",
        "update JobId=8 StartTime=now+4 NodeList= NumNodes=1",
        "release 8",
    ]


def test_orders_of_a_kind_go_step_by_step_to_one_scontrol_each(tmp_path: Path) -> None:
    orders: list[Order] = [
        Reserve("dally-1", ("n1", "n2"), "alice"),
        ReleaseOnNodes("7", ("n2", "n1"), "dally-1"),
        ReleaseOnNodes("8_3", ("n4",)),
        Requeue("9"),
        Rehold("10"),
        ReleaseToSlurm("11", 2),
        ReleaseOnNodes("12", ("n1", "n2", "n3"), tasks=6, exact=True),
        ReleaseOnNodes("14", ("n1", "n2"), tasks=5, cpus_per_task=3),
        ReleaseOnNodes("15", ("n1",), min_cpus=6),
        ReleaseToSlurm("12", 1, tasks=2, exact=True),
    ]
    assert said_to_scontrol(tmp_path, orders) == [
        "create reservation ReservationName=dally-1 Nodes=n[1-2] Users=alice StartTime=now Duration=1 "
        "Flags=IGNORE_JOBS,OVERLAP,FLEX,NO_HOLD_JOBS_AFTER_END",
        "update JobId=7 StartTime=now NodeList=n2,n1 NumNodes=2 ReservationName=dally-1",
        "update JobId=8_3 StartTime=now NodeList=n4 NumNodes=1 ReservationName=",
        "release 7",
        "release 8_3",
        "requeuehold Incomplete 9",
        "uhold 10",
        "update JobId=10 StartTime=now NodeList= ReservationName=",
        "update JobId=11 StartTime=now+4 NodeList= NumNodes=2 ReservationName=",
        "release 11",
        "update JobId=12 StartTime=now NodeList=n[1-3] NumNodes=3-3 NumTasks=6 NumCPUs=6 TresPerJob= "
        "ReservationName=",
        "update JobId=14 StartTime=now NodeList=n[1-2] NumNodes=2 NumTasks=5 NumCPUs=15 TresPerJob= "
        "ReservationName=",
        "update JobId=15 StartTime=now NodeList=n1 NumNodes=1 NumCPUs=6 ReservationName=",
        "release 12",
        "release 14",
        "release 15",
        "update JobId=12 StartTime=now+4 NodeList= NumNodes=1-1 NumTasks=2 NumCPUs=2 TresPerJob= "
        "ReservationName=",
        "release 12",
    ]


def test_a_job_whose_node_list_is_refused_is_not_released(tmp_path: Path) -> None:
    slurm = commands(tmp_path, scontrol=SCONTROL)
    answers = slurm.run(
        [ReleaseOnNodes("12", ("n1",)), ReleaseOnNodes("13", ("n2",)), ReleaseOnNodes("14", ("n3",))]
    )
    assert answers == (None, "Invalid job id specified for job 13", None)
    released = [line for line in (tmp_path / "said").read_text().splitlines() if line.startswith("release")]
    assert released == ["release 12", "release 14"]


def test_what_scontrol_says_before_the_first_order_refuses_none(tmp_path: Path) -> None:
    slurm = commands(tmp_path, scontrol=f"echo 'slurm.conf: odd' >&2\n{SCONTROL}")
    assert slurm.run([Requeue("12")]) == (None,)


def test_many_orders_are_all_answered(tmp_path: Path) -> None:
    slurm = commands(tmp_path, scontrol=SCONTROL)
    answers = slurm.run([Requeue(str(number)) for number in range(1, 351)])
    assert len(answers) == 350
    assert [number for number, answer in enumerate(answers, 1) if answer] == [13]


@pytest.mark.parametrize(
    "script", ["exit 1", "echo 'Unable to contact slurm controller (connect failure)' >&2", "kill -9 $$"]
)
def test_orders_of_which_nobody_knows_whether_they_were_carried_out_are_an_outage(
    tmp_path: Path, script: str
) -> None:
    with pytest.raises(SlurmUnavailableError, match="scontrol"):
        commands(tmp_path, scontrol=script).run([Requeue("1")])


@pytest.mark.parametrize(
    "message",
    [
        "scontrol: error: Could not load state: Unable to contact slurm controller (connect failure)",
        "Unexpected message received for job 1",
        "scontrol: error: Could not load state information for job 1: Protocol authentication error",
        "Socket timed out on send/recv operation for job 1",
    ],
)
def test_an_order_that_did_not_reach_slurm_is_an_outage(tmp_path: Path, message: str) -> None:
    script = SCONTROL.replace("Invalid job id specified for job 13", message)
    with pytest.raises(SlurmUnavailableError, match="scontrol: "):
        commands(tmp_path, scontrol=script).run([Requeue("13")])


@pytest.mark.parametrize(
    "order",
    [
        Requeue("1; scancel 2"),
        Requeue("1\nshutdown"),
        Requeue(""),
        Requeue("--all"),
        Requeue("\N{ARABIC-INDIC DIGIT ONE}"),
        Rehold("3_[1-2]"),
        ReleaseOnNodes("1", ()),
        ReleaseOnNodes("1", ("n1 Priority=9",)),
        ReleaseOnNodes("1", ("n[1-3]",)),
        ReleaseOnNodes("1", ("-n1",)),
        ReleaseOnNodes("1", ("n1",), "f Nodes=ALL"),
        ReleaseOnNodes("1", ("n1",), ""),
        ReleaseToSlurm("1", 0),
        Reserve("f", ("n1",), "alice,bob"),
        Reserve("f", ("n1",), "alice Flags=X"),
        Reserve("f\n", ("n1",), "alice"),
        Signal("1", "USR1 2"),
        Signal("1", "-9"),
        Signal("-u root", "USR1"),
    ],
)
def test_nothing_but_numbers_and_names_reaches_a_command(tmp_path: Path, order: Order) -> None:
    slurm = commands(tmp_path, scontrol="touch ran", scancel="touch ran")
    (refusal,) = slurm.run([order])
    assert refusal
    assert not (tmp_path / "ran").exists()


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    slurm = commands(tmp_path, timeout_s=2.0, squeue="sleep 600 & echo $! > child; wait")
    with pytest.raises(SlurmUnavailableError, match=r"squeue did not end within 2 s"):
        slurm.jobs()
    await_gone(int((tmp_path / "child").read_text()))


def test_a_command_that_is_missing_is_an_outage() -> None:
    with pytest.raises(SlurmUnavailableError, match="cannot run squeue: No such file"):
        CommandLine({"PATH": "/nowhere"}).jobs()


def test_a_listing_that_fails_is_no_empty_cluster(tmp_path: Path) -> None:
    slurm = commands(tmp_path, scontrol="echo 'scontrol: error: no such thing' >&2; exit 1")
    for ask in (slurm.nodes, slurm.reservations):
        with pytest.raises(SlurmUnavailableError, match="scontrol: no such thing"):
            ask()


def test_nodes_and_reservations_are_never_older_than_jobs(tmp_path: Path) -> None:
    squeue = f"sleep 0.3; echo squeue >> asked; {NO_JOBS}"
    slurm = commands(tmp_path, squeue=squeue, scontrol='echo "$@" >> asked; echo NodeName=n1 State=IDLE')
    jobs, nodes, reservations, partitions = slurm.look()
    assert (jobs, [node.name for node in nodes], reservations, partitions) == ((), ["n1"], (), ())
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "squeue"
    assert {line.split()[-1] for line in asked} >= {"node", "reservation", "partition"}


def test_nodes_are_asked_for_while_squeue_prints_jobs(tmp_path: Path) -> None:
    wait = "echo; while [ ! -e node -o ! -e reservation -o ! -e partition ]; do sleep 0.01; done"
    squeue = f'[ -z "$SQUEUE_FORMAT2" ] || {{ {wait}; }}; {NO_JOBS}'
    slurm = commands(tmp_path, squeue=squeue, scontrol='for word; do :; done; : > "$word"')
    assert slurm.look() == ((), (), (), ())


@pytest.mark.parametrize("command", ["squeue", "scontrol"])
def test_a_look_of_which_a_part_fails_is_an_outage(tmp_path: Path, command: str) -> None:
    scripts = {"squeue": NO_JOBS, "scontrol": "true", command: "echo no such thing >&2; exit 1"}
    with pytest.raises(SlurmUnavailableError, match=f"{command}: no such thing"):
        commands(tmp_path, 10.0, **scripts).look()


def test_output_of_any_length_is_read(tmp_path: Path) -> None:
    slurm = commands(tmp_path, scontrol="seq -f 'NodeName=n%.0f State=IDLE Gres=gpu:8' 50000")
    assert len(slurm.nodes()) == 50_000


def test_commands_run_behind_a_prefix_and_in_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    commands(tmp_path, wrap='env > seen; echo "$@" >> argv; exec "$@"', squeue=NO_JOBS, scontrol="true")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CONF": "/x"}
    assert CommandLine(environment, prefix=["wrap"]).jobs() == ()
    seen = (tmp_path / "seen").read_text().splitlines()
    assert {"SLURM_CONF=/x", "SLURM_BITSTR_LEN=0"} <= set(seen)
    assert not [line for line in seen if line.startswith(("SQUEUE_STATES", "SLURM_CLUSTERS"))]
    assert (tmp_path / "argv").read_text().startswith("squeue ")


@pytest.mark.parametrize(
    ("version", "option"),
    [
        ("slurm-wlm 22.05.8\n", "--json"),
        ("slurm 25.11.2\n", "--json"),
        ("slurm-wlm 26.05.5\n", "--json=v0.0.44"),
        ("slurm 27.11.0-rc1\n", "--json=v0.0.44"),
        ("of our own\n", "--json"),
    ],
)
def test_jobs_are_asked_for_in_a_form_that_tells_exclusive_ones(version: str, option: str) -> None:
    assert json_option(version) == option


@pytest.mark.slurm
def test_an_exclusive_job_is_seen_as_one(local_slurm: LocalSlurm) -> None:
    for option in ("--exclusive", "--job-name=shares"):
        local_slurm.run("sbatch", "--hold", option, "--gres=gpu:1", "--output=/dev/null", "--wrap=true")
    assert [job.exclusive for job in CommandLine(local_slurm.environment).jobs()] == [True, False]


@pytest.mark.slurm
def test_a_job_of_gpus_as_a_total_that_was_on_three_nodes_starts_on_one(local_slurm: LocalSlurm) -> None:
    """Three tasks of six CPUs, as Slurm counts then, are more than the 16 CPUs of a node."""
    slurm = CommandLine(local_slurm.environment)
    asked = ("--hold", "--parsable", "--gpus=4", "--cpus-per-task=6", "--output=/dev/null")
    job_id = local_slurm.run("sbatch", *asked, "--wrap=sleep 600").strip()

    def order(each: Order, state: State) -> None:
        assert slurm.run([each]) == (None,)
        wait_until(lambda: slurm.jobs()[0].state is state, f"it to be {state}")

    order(ReleaseOnNodes(job_id, ("n1", "n2", "n3")), State.RUNNING)
    order(Requeue(job_id), State.PENDING)
    order(ReleaseOnNodes(job_id, ("n4",), min_cpus=6), State.RUNNING)
    assert slurm.jobs()[0].gpus == {"n4": 4}
    local_slurm.run("scancel", job_id)


def test_a_held_job_has_the_nodes_that_it_asks_for_whatever_slurm_estimates(local_slurm: LocalSlurm) -> None:
    asked = {
        "--ntasks=1 --cpus-per-task=4 --gres=gpu:2": 1,
        "--ntasks=4 --cpus-per-task=4 --gpus-per-task=1": 1,
        "--ntasks=3 --cpus-per-task=8 --gres=gpu:1": 2,
        "--nodes=1 --ntasks=1 --cpus-per-task=4 --gres=gpu:1": 1,
        "--nodes=2 --ntasks=4 --cpus-per-task=4 --gres=gpu:2": 2,
        "--nodelist=n1,n2 --ntasks=2 --cpus-per-task=4 --gres=gpu:1": 2,
        "--ntasks=16 --ntasks-per-node=8 --cpus-per-task=2 --gres=gpu:8": 2,
        "--gpus-per-node=2": 1,
    }
    for options in asked:
        local_slurm.run("sbatch", "--hold", *options.split(), "--output=/dev/null", "--wrap=true")
    slurm = CommandLine(local_slurm.environment)
    for jobs in (slurm.jobs(), slurm.look().jobs, slurm.look().jobs):
        assert dict(zip(asked, (job.min_nodes for job in jobs), strict=True)) == asked


def test_signals_are_refused_by_job(tmp_path: Path) -> None:
    said = [
        "scancel: error: Kill job error on job id 3_[1-2]: no",
        "scancel: error: Kill job error on job id 5: gone",
    ]
    slurm = commands(tmp_path, scancel="".join(f"echo '{line}' >&2;" for line in said) + "exit 1")
    answers = slurm.run([Signal(job, "USR1") for job in ("55", "5", "3_1", "3")])
    assert answers == (None, "Kill job error on job id 5: gone", "Kill job error on job id 3_[1-2]: no", None)


def test_an_error_of_scancel_about_no_job_refuses_all_of_its_signals(tmp_path: Path) -> None:
    slurm = commands(tmp_path, scancel="echo 'scancel: error: bad day' >&2; exit 1")
    assert slurm.run([Signal("1", "USR1"), Signal("2", "USR1")]) == ("bad day", "bad day")


SIGNALLED = """#!/bin/bash
trap 'echo script >> {folder}/got' USR1
cat > {folder}/step <<'END'
trap 'echo step >> {folder}/got' USR1
touch {folder}/up$SLURM_PROCID
while :; do sleep 0.05; done
END
srun -N2 -n2 bash {folder}/step &
while :; do wait; done
"""


@pytest.mark.slurm
def test_a_signal_reaches_the_script_and_each_step_once(
    local_slurm: LocalSlurm, users: Sequence[str]
) -> None:
    slurm = CommandLine(local_slurm.environment)
    script = SIGNALLED.format(folder=local_slurm.work)
    job_id = local_slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", "-N2", stdin=script, user=users[0]
    ).strip()
    local_slurm.wait_for(
        lambda: (local_slurm.work / "up0").exists() and (local_slurm.work / "up1").exists(),
        "both steps to run",
    )
    assert slurm.run([Signal(job_id, "USR1")]) == (None,)
    got = local_slurm.work / "got"
    local_slurm.wait_for(
        lambda: got.exists() and len(got.read_text().splitlines()) >= 3, "the signal to arrive"
    )
    assert sorted(got.read_text().split()) == ["script", "step", "step"]
    assert [job.state for job in slurm.jobs()] == [State.RUNNING]


def test_who_may_see_whose_jobs_is_read_again_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, said, now_s = CommandLine(), ["none"], time.monotonic()
    monkeypatch.setattr(slurm, "read", lambda *_: f"PrivateData             = {said[-1]}\n")
    assert not slurm.hides_jobs()
    said.append("jobs,usage")
    assert not slurm.hides_jobs()
    monkeypatch.setattr("slurm_plugin.client.command_line.time.monotonic", lambda: now_s + 70)
    assert slurm.hides_jobs()
