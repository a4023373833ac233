"""A lab runs jobs where it is told, takes disturbances, and leaves nothing behind."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.local_cluster.local_slurm import LabError, LocalSlurm, free_ports
from slurm_plugin.local_cluster.processes import find_processes
from slurm_plugin.local_cluster.slurm_files import LabSpec

LUA = """
function slurm_job_submit(description, partitions, uid)
    description.comment = "by lua"
    return slurm.SUCCESS
end
function slurm_job_modify(description, job, partitions, uid) return slurm.SUCCESS end
"""


def submit(lab: LocalSlurm, *options: str, user: str | None = None) -> str:
    return lab.run("sbatch", "--parsable", "--output=/dev/null", *options, user=user).strip()


def sleeper(lab: LocalSlurm, *options: str, user: str | None = None) -> str:
    job = submit(lab, *options, "--wrap=sleep 300", user=user)
    lab.wait_for(lambda: bool(processes(lab, SLURM_JOB_ID=job)), f"job {job} to run")
    return job


def shown(lab: LocalSlurm, job: str, field: str) -> str:
    return lab.run("squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={field}").strip()


def processes(lab: LocalSlurm, **variables: str) -> set[int]:
    return find_processes(
        {"SLURM_CONF": str(lab.spec.conf), **variables}, "" if variables else str(lab.spec.folder)
    )


def test_a_job_of_a_user_runs_as_that_user_with_its_gpus(lab: LocalSlurm, users: tuple[str, ...]) -> None:
    out = lab.work / "out"
    job = lab.run(
        "sbatch",
        "--parsable",
        "--gres=gpu:2",
        f"--output={out}",
        "--wrap=id -un; echo $CUDA_VISIBLE_DEVICES",
        user=users[0],
    ).strip()
    lab.wait_for(lambda: shown(lab, job, "%T") == "COMPLETED", f"job {job} to complete")
    assert out.read_text() == f"{users[0]}\n0,1\n"


def test_gpu_jobs_share_a_node(lab: LocalSlurm) -> None:
    jobs = [sleeper(lab, "--nodelist=n3", "--gres=gpu:4") for _ in range(2)]
    assert [shown(lab, job, "%N") for job in jobs] == ["n3", "n3"]


def test_an_orderly_restart_of_slurmctld_keeps_jobs(lab: LocalSlurm) -> None:
    job = submit(lab, "--hold", "--wrap=true")
    lab.stop_controller()
    assert not lab.controller_answers()
    lab.start_controller()
    assert shown(lab, job, "%T") == "PENDING"


def test_a_killed_slurmctld_comes_back(lab: LocalSlurm) -> None:
    lab.kill_controller()
    lab.start_controller()
    assert lab.controller_answers()


def test_a_paused_slurmctld_does_not_answer_until_resumed(lab: LocalSlurm) -> None:
    lab.pause_controller()
    with pytest.raises(LabError, match=r"squeue took longer than 0\.5 s"):
        lab.run("squeue", timeout_s=0.5)
    lab.resume_controller()
    lab.wait_for(lab.controller_answers, "slurmctld to answer again")


def test_a_lost_node_loses_its_processes_and_no_other_does(lab: LocalSlurm) -> None:
    for name in ("n1", "n2"):
        sleeper(lab, f"--nodelist={name}")
    lab.kill_node("n1")
    assert not processes(lab, SLURMD_NODENAME="n1")
    assert processes(lab, SLURMD_NODENAME="n2")


def test_the_jobs_of_a_lost_node_end_with_the_node(lab: LocalSlurm) -> None:
    job = sleeper(lab, "--nodelist=n1", "--no-requeue")
    lab.kill_node("n1")
    lab.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=lost")
    assert shown(lab, job, "%T") == "NODE_FAIL"


def test_jobs_outlive_their_slurmd(lab: LocalSlurm) -> None:
    job = sleeper(lab, "--nodelist=n1")
    lab.kill_slurmd("n1")
    assert processes(lab, SLURMD_NODENAME="n1", SLURM_JOB_ID=job)
    lab.start_node("n1")
    assert shown(lab, job, "%T") == "RUNNING"


def test_a_restart_with_another_topology_keeps_jobs(lab: LocalSlurm) -> None:
    job = sleeper(lab, "--nodelist=n1")
    lab.rewrite(replace(lab.spec, racks=2))
    assert "SwitchName=rack0 Level=0 LinkSpeed=1 Nodes=n[1-4]" in lab.run("scontrol", "show", "topology")
    assert shown(lab, job, "%T") == "RUNNING"


def test_more_nodes_than_at_first_are_refused(lab: LocalSlurm) -> None:
    with pytest.raises(LabError, match="ports for 8 nodes, 9 are too many"):
        lab.rewrite(replace(lab.spec, nodes=9))


def test_a_job_submit_script_is_run(lab: LocalSlurm) -> None:
    lab.rewrite(replace(lab.spec, lua_files={"job_submit.lua": LUA}))
    assert shown(lab, submit(lab, "--hold", "--wrap=true"), "%k") == "by lua"


def test_stopping_leaves_no_process_and_no_folder(lab_folder: Path) -> None:
    lab = LocalSlurm(LabSpec(lab_folder, nodes=2, racks=1))
    lab.start()
    sleeper(lab, "--nodes=2")
    assert processes(lab, SLURMD_NODENAME="n1")
    lab.stop()
    assert not processes(lab)
    assert not lab_folder.exists()


def test_a_lab_that_cannot_start_says_why_and_leaves_nothing(lab_folder: Path) -> None:
    lab = LocalSlurm(LabSpec(lab_folder, extra_conf=("NoSuchKey=1",)))
    with pytest.raises(LabError, match=r"slurmctld ended: .*NoSuchKey"):
        lab.start()
    assert not processes(lab)
    assert not lab_folder.exists()


def test_without_slurm_the_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(LabError, match=r"slurmctld.*apt-get install .*slurmctld slurmd slurm-client munge"):
        LocalSlurm(LabSpec(tmp_path)).start()


def test_a_refused_command_says_what_slurm_said(lab: LocalSlurm) -> None:
    with pytest.raises(LabError, match=r"sbatch .* failed \(1\): .*invalid partition"):
        submit(lab, "--partition=nowhere", "--wrap=true")


def test_ports_are_free_ones() -> None:
    assert 10_000 <= free_ports(3) < 32_000
