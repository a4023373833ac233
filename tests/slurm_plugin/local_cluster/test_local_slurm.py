"""A local cluster runs jobs where it is told, takes disturbances, and leaves nothing behind."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.local_cluster.cluster import ClusterError
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.processes import find_processes
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

LUA = """
function slurm_job_submit(description, partitions, uid)
    description.comment = "by lua"
    return slurm.SUCCESS
end
function slurm_job_modify(description, job, partitions, uid) return slurm.SUCCESS end
"""


def submit(local_slurm: LocalSlurm, *options: str, user: str | None = None) -> str:
    return local_slurm.run("sbatch", "--parsable", "--output=/dev/null", *options, user=user).strip()


def sleeper(local_slurm: LocalSlurm, *options: str, user: str | None = None) -> str:
    job = submit(local_slurm, *options, "--wrap=sleep 300", user=user)
    local_slurm.wait_for(lambda: bool(processes(local_slurm, SLURM_JOB_ID=job)), f"job {job} to run")
    return job


def shown(local_slurm: LocalSlurm, job: str, field: str) -> str:
    return local_slurm.run(
        "squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={field}"
    ).strip()


def processes(local_slurm: LocalSlurm, **variables: str) -> set[int]:
    return find_processes(
        {"SLURM_CONF": str(local_slurm.spec.conf), **variables},
        "" if variables else str(local_slurm.spec.folder),
    )


def test_a_job_of_a_user_runs_as_that_user_with_its_gpus(
    local_slurm: LocalSlurm, users: tuple[str, ...]
) -> None:
    out = local_slurm.work / "out"
    job = local_slurm.run(
        "sbatch",
        "--parsable",
        "--gres=gpu:2",
        f"--output={out}",
        "--wrap=id -un; echo $CUDA_VISIBLE_DEVICES",
        user=users[0],
    ).strip()
    local_slurm.wait_for(lambda: shown(local_slurm, job, "%T") == "COMPLETED", f"job {job} to complete")
    assert out.read_text() == f"{users[0]}\n0,1\n"


def test_gpu_jobs_share_a_node(local_slurm: LocalSlurm) -> None:
    jobs = [sleeper(local_slurm, "--nodelist=n3", "--gres=gpu:4") for _ in range(2)]
    assert [shown(local_slurm, job, "%N") for job in jobs] == ["n3", "n3"]


def test_an_orderly_restart_of_slurmctld_keeps_jobs(local_slurm: LocalSlurm) -> None:
    job = submit(local_slurm, "--hold", "--wrap=true")
    local_slurm.stop_controller()
    assert not local_slurm.controller_answers()
    local_slurm.start_controller()
    assert shown(local_slurm, job, "%T") == "PENDING"


def test_a_killed_slurmctld_comes_back(local_slurm: LocalSlurm) -> None:
    local_slurm.kill_controller()
    local_slurm.start_controller()
    assert local_slurm.controller_answers()


def test_a_paused_slurmctld_does_not_answer_until_resumed(local_slurm: LocalSlurm) -> None:
    local_slurm.pause_controller()
    with pytest.raises(ClusterError, match=r"squeue took longer than 0\.5 s"):
        local_slurm.run("squeue", timeout_s=0.5)
    local_slurm.resume_controller()
    local_slurm.wait_for(local_slurm.controller_answers, "slurmctld to answer again")


def test_a_lost_node_loses_its_processes_and_no_other_does(local_slurm: LocalSlurm) -> None:
    for name in ("n1", "n2"):
        sleeper(local_slurm, f"--nodelist={name}")
    local_slurm.kill_node("n1")
    assert not processes(local_slurm, SLURMD_NODENAME="n1")
    assert processes(local_slurm, SLURMD_NODENAME="n2")


def test_the_jobs_of_a_lost_node_end_with_the_node(local_slurm: LocalSlurm) -> None:
    job = sleeper(local_slurm, "--nodelist=n1", "--no-requeue")
    local_slurm.kill_node("n1")
    local_slurm.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=lost")
    assert shown(local_slurm, job, "%T") == "NODE_FAIL"


def test_jobs_outlive_their_slurmd(local_slurm: LocalSlurm) -> None:
    job = sleeper(local_slurm, "--nodelist=n1")
    local_slurm.kill_slurmd("n1")
    assert processes(local_slurm, SLURMD_NODENAME="n1", SLURM_JOB_ID=job)
    local_slurm.start_node("n1")
    assert shown(local_slurm, job, "%T") == "RUNNING"


def test_a_restart_with_another_topology_keeps_jobs(local_slurm: LocalSlurm) -> None:
    job = sleeper(local_slurm, "--nodelist=n1")
    local_slurm.rewrite(replace(local_slurm.spec, racks=2))
    assert "SwitchName=rack0 Level=0 LinkSpeed=1 Nodes=n[1-4]" in local_slurm.run(
        "scontrol", "show", "topology"
    )
    assert shown(local_slurm, job, "%T") == "RUNNING"


def test_more_nodes_than_at_first_are_refused(local_slurm: LocalSlurm) -> None:
    with pytest.raises(ClusterError, match="ports for 8 nodes, 9 are too many"):
        local_slurm.rewrite(replace(local_slurm.spec, nodes=9))


def test_a_job_submit_script_is_run(local_slurm: LocalSlurm) -> None:
    local_slurm.rewrite(replace(local_slurm.spec, lua_files={"job_submit.lua": LUA}))
    assert shown(local_slurm, submit(local_slurm, "--hold", "--wrap=true"), "%k") == "by lua"


def test_stopping_leaves_no_process_and_no_folder(cluster_folder: Path) -> None:
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, nodes=2, racks=1))
    local_slurm.start()
    sleeper(local_slurm, "--nodes=2")
    assert processes(local_slurm, SLURMD_NODENAME="n1")
    local_slurm.stop()
    assert not processes(local_slurm)
    assert not cluster_folder.exists()


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(cluster_folder: Path) -> None:
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, extra_conf=("NoSuchKey=1",)))
    with pytest.raises(ClusterError, match=r"slurmctld ended: .*NoSuchKey"):
        local_slurm.start()
    assert not processes(local_slurm)
    assert not cluster_folder.exists()


def test_without_slurm_the_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(
        ClusterError, match=r"slurmctld.*apt-get install .*slurmctld slurmd slurm-client munge"
    ):
        LocalSlurm(LocalClusterSpec(tmp_path)).start()


def test_a_refused_command_says_what_slurm_said(local_slurm: LocalSlurm) -> None:
    with pytest.raises(ClusterError, match=r"sbatch .* failed \(1\): .*invalid partition"):
        submit(local_slurm, "--partition=nowhere", "--wrap=true")
