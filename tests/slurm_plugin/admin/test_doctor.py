"""`dally slurm doctor`: a healthy site passes, and each mistake that sites make is found by its check."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dally.cluster import load_cluster
from dally.cluster.slurm_conf import ConfLine
from dally.cluster.topology import LeftOut
from dally.cluster.topology_build import SwitchEntry, wire
from dally.commands import main
from slurm_plugin.admin.checks.gather import gather, own_file
from slurm_plugin.admin.checks.site import Finding, Level, SiteFacts, StateFolder, TopologyFile
from slurm_plugin.admin.doctor import CHECKS, examine
from slurm_plugin.admin.install import InstallTarget, install, plan_install
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.command_line import parse_version
from slurm_plugin.client.node_text import read_records, read_settings
from slurm_plugin.config import Config
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

NODES = tuple(f"n{number}" for number in range(1, 5))
SETTINGS = {
    "ClusterName": "lab",
    "SlurmUser": "slurm(64030)",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "JobDefaults": "DefMemPerGPU=4000",
    "GresTypes": "gpu",
    "TopologyPlugin": "topology/tree",
    "JobRequeue": "1",
    "RequeueExitHold": "80-85",
    "AccountingStorageTRES": "cpu,gres/gpu",
    "MinJobAge": "300 sec",
    "SchedulerParameters": "bf_interval=1,batch_sched_delay=0",
    "AuthInfo": "(null)",
    "SuspendProgram": "(null)",
    "SuspendTime": "INFINITE",
    "PreemptType": "preempt/none",
    "JobSubmitPlugins": "lua",
}


def row(**changes: str) -> dict[str, str]:
    return {"Gres": "gpu:h100:8", "Partitions": "gpu", "State": "IDLE"} | changes


def wiring(racks: Mapping[str, tuple[str, ...]]) -> TopologyFile:
    entries = [SwitchEntry(name, nodes, ()) for name, nodes in racks.items()]
    return TopologyFile(
        Path("/etc/slurm/topology.conf"), 100.0, wire([*entries, SwitchEntry("top", (), tuple(racks))])
    )


@pytest.fixture
def site(tmp_path: Path) -> SiteFacts:
    """A site where all is well."""
    (tmp_path / "slurm.conf").write_text("NodeName=n[1-4] Gres=gpu:h100:8\n")
    return SiteFacts(
        config_path=Path("/etc/dally/dally.toml"),
        config=Config(("gpu",), url="http://h"),
        commands={"scontrol": "/usr/bin/scontrol"},
        version=(22, 5),
        settings=SETTINGS,
        partitions={"gpu": {}, "cpu": {}},
        nodes={name: row() for name in NODES} | {"login": row(Gres="(null)", Partitions="cpu")},
        booted_s=1000.0,
        user="dally",
        uid=900,
        admin_level="operator",
        conf_gres=dict.fromkeys(NODES, "gpu:h100:8"),
        gres_lines=(ConfLine("gres.conf, line 1", {"name": "gpu", "file": "/dev/nvidia[0-7]"}),),
        topology=wiring({"r1": ("n1", "n2", "login"), "r2": ("n3", "n4")}),
        cluster=load_cluster(tmp_path),
        lua="ours",
        own_lua="ours",
        site_lua='return { mode = "hold", partitions = { ["gpu"] = true }, exempt = { [900] = true } }',
        profiles=3,
        state_dir=StateFolder(900, 0o700, 10**10),
    )


def judge(site: SiteFacts, name: str) -> Finding:
    return examine(site)[name]


def settings(**changes: str) -> Callable[[SiteFacts], SiteFacts]:
    return lambda site: replace(site, settings={**site.settings, **changes})


def changed(**changes: Any) -> Callable[[SiteFacts], SiteFacts]:
    return lambda site: replace(site, **changes)


def configured(**changes: Any) -> Callable[[SiteFacts], SiteFacts]:
    return lambda site: replace(site, config=Config(**({"partitions": ("gpu",)} | changes)))


def node(name: str, **changes: str) -> Callable[[SiteFacts], SiteFacts]:
    return lambda site: replace(site, nodes={**site.nodes, name: row(**changes)})


def gres(**values: str) -> Callable[[SiteFacts], SiteFacts]:
    return changed(gres_lines=(ConfLine("gres.conf, line 1", {"name": "gpu", **values}),))


def topology(**racks: tuple[str, ...]) -> Callable[[SiteFacts], SiteFacts]:
    return changed(topology=wiring(racks))


def yaml_of(version: tuple[int, int]) -> Callable[[SiteFacts], SiteFacts]:
    return changed(topology=TopologyFile(Path("/etc/slurm/topology.yaml"), 0.0), version=version)


def without_n9() -> Callable[[SiteFacts], SiteFacts]:
    """Slurm has a node more than the cluster, which tells why."""

    def change(site: SiteFacts) -> SiteFacts:
        assert site.cluster is not None
        left_out = (LeftOut(("n9",), "on no switch"),)
        return node("n9")(replace(site, cluster=replace(site.cluster, left_out=left_out)))

    return change


def test_a_healthy_site_passes_every_check(site: SiteFacts) -> None:
    found = examine(site)
    assert {name for name, finding in found.items() if finding.level is not Level.OK} == set()
    assert len(found) == len(CHECKS)


PROBLEMS: list[tuple[str, Callable[[SiteFacts], SiteFacts], str]] = [
    ("commands", changed(commands={"scontrol": None}), "not on PATH: scontrol"),
    ("version", changed(version=(21, 8)), "Slurm 21.08"),
    ("rights", changed(admin_level="none"), "dally is not an operator"),
    (
        "rights",
        lambda site: settings(AccountingStorageType="accounting_storage/none")(replace(site, admin_level="")),
        "neither root nor SlurmUser",
    ),
    ("partitions", configured(partitions=("big",)), "there is no partition big"),
    ("partitions", configured(partitions=("cpu",)), "cpu has no node with GPUs"),
    ("availability", lambda site: replace(site, nodes={"n1": row(State="DOWN+DRAIN")}), "no GPU node"),
    ("select type", settings(SelectType="select/linear"), "SelectType=select/linear"),
    ("gres types", settings(GresTypes="(null)"), "GresTypes=unset"),
    ("gres devices", gres(count="8"), "gres.conf, line 1: GPUs are counted"),
    ("registration", node("n1", State="IDLE+INVALID_REG", Reason="gres/gpu count"), "n1 (gres/gpu count)"),
    ("slurm.conf", changed(conf_gres={"n2": "gpu:h100:4"}), "other GPUs than slurmctld for n2"),
    ("topology plugin", settings(TopologyPlugin="topology/none"), "Slurm ignores it"),
    ("topology plugin", changed(topology=None), "topology.conf is missing"),
    ("topology plugin", yaml_of((24, 11)), "only Slurm 25.05"),
    ("topology file", changed(topology=TopologyFile(Path("t"), 0.0, error="t: is empty")), "t: is empty"),
    ("cluster", changed(cluster=None, cluster_error="no slurm.conf"), "no slurm.conf"),
    ("cluster", node("n9"), "/etc/slurm lacks n9"),
    ("job age", settings(MinJobAge="2 sec"), "MinJobAge=2"),
    ("start delay", settings(SchedulerParameters="batch_sched_delay=60"), "batch_sched_delay=60"),
    ("job_submit", changed(lua=None), "job_submit.lua is missing"),
    ("job_submit", settings(JobSubmitPlugins="(null)"), "JobSubmitPlugins has no lua"),
    ("job_submit", changed(site_lua=""), "no dally_site.lua"),
    ("job_submit", configured(partitions=("gpu", "cpu")), "does not name partition cpu"),
    ("job_submit", changed(uid=901, user="other"), "does not exempt other (uid 901)"),
    (
        "hidden",
        lambda site: settings(PrivateData="jobs,usage")(replace(site, admin_level="none")),
        "hides jobs of others from dally",
    ),
    ("profiles", changed(profiles_error="no such set"), "no such set"),
    ("state folder", changed(state_dir=None), "/var/lib/dally is missing"),
    ("state folder", changed(state_dir=StateFolder(900, 0o755, 10**10)), "open to others (mode 755)"),
    ("state folder", changed(state_dir=StateFolder(900, 0o700, 10**6)), "1 MB left"),
]

WARNINGS: list[tuple[str, Callable[[SiteFacts], SiteFacts], str]] = [
    ("partitions", changed(partitions={"gpu": {"State": "DOWN"}, "cpu": {}}), "partition gpu is DOWN"),
    ("blocks", changed(blocks=BlockTopology({2: {"n1": "r1"}})), "only in as few blocks as they need"),
    ("clock", changed(skew_s=-30.0), "by 30 s"),
    ("slurm.conf", changed(conf_error="no slurm.conf"), "no slurm.conf"),
    (
        "topology plugin",
        lambda site: settings(TopologyPlugin="topology/flat")(replace(site, topology=None)),
        "no switches",
    ),
    ("topology file", yaml_of((25, 5)), "the network is flat"),
    ("topology age", changed(booted_s=10.0), "changed after slurmctld started"),
    ("racks", topology(r1=("n1",), r2=("n2", "n3", "n4")), "r2 has 3 GPU nodes, r1 has 1"),
    ("racks", topology(r1=NODES), "all GPU nodes are on one switch"),
    ("topology nodes", topology(r1=NODES, r2=("old1",)), "has old1, which Slurm does not know"),
    ("topology nodes", topology(r1=NODES[:3]), "on no switch: n4"),
    ("cluster", without_n9(), "left out 1 node: n9 (on no switch)"),
    ("memory", settings(JobDefaults="(null)", DefMemPerNode="UNLIMITED"), "without --mem"),
    ("requeue", settings(JobRequeue="0"), "JobRequeue=0"),
    ("checkpoint exit", settings(RequeueExitHold="(null)"), "RequeueExitHold lacks 85"),
    ("hidden", changed(cloud_nodes=frozenset({"c1"})), "powered down, such as c1"),
    ("history", changed(history_error="sacct: no"), "cannot read the history: sacct: no"),
    ("history", settings(AccountingStorageTRES="cpu"), "lacks gres/gpu"),
    (
        "history",
        changed(dbd_settings={"PrivateData": "jobs"}, admin_level="none"),
        "hides the history of others from dally",
    ),
    ("start delay", settings(SchedulerParameters="defer,bf_interval=1"), "defer"),
    (
        "switch wait",
        changed(site_lua='return { mode = "hint" }'),
        "max_switch_wait is unset",
    ),
    ("power saving", settings(SuspendProgram="/bin/off", SuspendTime="300 sec"), "SuspendProgram"),
    ("preemption", settings(PreemptType="preempt/qos"), "PreemptType=preempt/qos"),
    ("job_submit", changed(lua="older"), "not the one of this version"),
    ("profiles", changed(profiles=0), "no profiles"),
    ("profiles", changed(stand_ins=("no profile on GPU type h100 for m",)), "no profile on GPU type h100"),
    ("state folder", changed(state_dir=StateFolder(0, 0o700, 10**10)), "belongs to uid 0"),
    (
        "controller",
        changed(health_error="no controller answers at http://h"),
        "no controller answers at http://h",
    ),
]


@pytest.mark.parametrize(("name", "change", "found"), PROBLEMS)
def test_what_keeps_dally_from_working_is_a_problem_with_advice(
    site: SiteFacts, name: str, change: Callable[[SiteFacts], SiteFacts], found: str
) -> None:
    finding = judge(change(site), name)
    assert finding.level is Level.PROBLEM
    assert found in finding.found
    assert finding.advice


@pytest.mark.parametrize(("name", "change", "found"), WARNINGS)
def test_what_makes_dally_worse_is_a_warning_with_advice(
    site: SiteFacts, name: str, change: Callable[[SiteFacts], SiteFacts], found: str
) -> None:
    finding = judge(change(site), name)
    assert finding.level is Level.WARNING
    assert found in finding.found
    assert finding.advice


HINT = 'return { mode = "hint", partitions = { ["gpu"] = true } }'

NOTES: list[tuple[str, Callable[[SiteFacts], SiteFacts], str]] = [
    ("rights", changed(uid=0, admin_level=""), "you are root"),
    ("rights", changed(uid=64030, user="slurm", admin_level=""), "slurm is SlurmUser"),
    ("other partitions", node("n1", Partitions="gpu,scavenge"), "also in scavenge"),
    ("availability", node("n1", State="IDLE+DRAIN"), "not available: n1"),
    ("availability", node("n1", State="IDLE+NOT_RESPONDING"), "not available: n1"),
    ("gres devices", gres(autodetect="nvml"), "detected"),
    ("gres devices", changed(gres_lines=None), "no gres.conf here"),
    ("topology plugin", yaml_of((25, 5)), "topology.yaml is what Slurm reads"),
    ("blocks", changed(blocks=BlockTopology({2: {"n1": "r1"}}, True)), "jobs get --segment=1"),
    ("racks", topology(r1=("n1", "n2"), r2=("n3", "n4")), "2 racks of 2 GPU nodes each"),
    ("partition topology", changed(partitions={"gpu": {"Topology": "fabric2"}}), "topology fabric2"),
    ("memory", settings(JobDefaults="(null)", DefMemPerCPU="2000"), "has a default"),
    ("memory", settings(SelectTypeParameters="CR_CORE", JobDefaults="(null)"), "not counted"),
    ("job age", settings(MinJobAge="0 sec"), "for ever"),
    ("start delay", settings(SchedulerParameters="(null)"), "up to 3 s later (batch_sched_delay), 30 s"),
    ("power saving", settings(SuspendProgram="/bin/off"), "does not switch nodes off"),
    (
        "job_submit",
        changed(site_lua='return { mode = "hint", partitions = { ["gpu"] = true } }'),
        "in hint mode",
    ),
    ("controller", configured(url=""), "url is empty"),
    ("controller", changed(site_lua=HINT, health_error="refused"), "hint mode needs none"),
    ("rights", changed(site_lua=HINT, admin_level=""), "hint mode needs no rights"),
    ("state folder", changed(site_lua=HINT, state_dir=None), "hint mode keeps nothing"),
]


@pytest.mark.parametrize(("name", "change", "found"), NOTES)
def test_what_is_fine_is_told_as_it_is(
    site: SiteFacts, name: str, change: Callable[[SiteFacts], SiteFacts], found: str
) -> None:
    finding = judge(change(site), name)
    assert finding.level is Level.OK
    assert found in finding.found


@pytest.mark.parametrize(
    ("chosen", "level", "words"),
    [
        ({"policy": "fifo"}, Level.OK, "plans by nothing that jobs must report"),
        (
            {"policy": "ones"},
            Level.WARNING,
            "plans by epochs, and speeds on each number of GPUs, and no model",
        ),
        ({"policy": "ones", "profiles": "pollux"}, Level.OK, "by profiles, and by what jobs with --progress"),
        ({"policy": "nonsense"}, Level.PROBLEM, "nonsense"),
    ],
)
def test_a_policy_that_plans_by_what_jobs_must_report_is_told(
    site: SiteFacts, chosen: dict[str, str], level: Level, words: str
) -> None:
    found = judge(configured(**chosen)(site), "reports")
    assert found.level is level
    assert words in found.found


def test_without_a_configuration_the_checks_of_slurm_still_run(site: SiteFacts) -> None:
    found = examine(replace(site, config=None, config_error="cannot read it"))
    assert found["configuration"] == Finding(Level.PROBLEM, "cannot read it", found["configuration"].advice)
    assert "select type" in found
    assert "partitions" not in found


def test_without_slurm_the_checks_of_files_still_run(site: SiteFacts) -> None:
    found = examine(replace(site, slurm_error="slurmctld is DOWN"))
    assert "state folder" in found
    assert "select type" not in found
    assert any(finding.level is Level.PROBLEM for finding in found.values())


def test_settings_rows_and_versions_are_read_as_slurm_prints_them() -> None:
    assert read_settings("Configuration data as of 2026\nMinJobAge    = 300 sec\nAuthInfo = a=b\n") == {
        "MinJobAge": "300 sec",
        "AuthInfo": "a=b",
    }
    line = "NodeName=n1 OS=Linux 6.1 #1 SMP State=IDLE Gres=(null) Reason=bad State=DOWN [root@x]\n\n"
    row = {"NodeName": "n1", "OS": "Linux 6.1 #1 SMP", "State": "IDLE", "Gres": "", "Reason": "bad"}
    assert read_records(line, "NodeName") == {"n1": row}
    assert parse_version("slurm-wlm 22.05.8") == (22, 5)
    assert parse_version("slurm 24.11.5\n") == (24, 11)
    assert parse_version("?") is None


def test_the_command_tells_problems_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    arguments = ["slurm", "doctor", "--config", str(tmp_path / "none.toml")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "problem commands: not on PATH: sbatch, squeue, sinfo, scontrol" in result.stdout.replace(
        "  ", " "
    )
    assert "checks left out" in result.stdout
    found = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert found[0].keys() == {"name", "level", "found", "advice"}
    assert found[0]["level"] == "problem"


def test_a_job_submit_that_calls_dallys_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    (tmp_path / "job_submit.lua").write_text("-- the site's\n")
    (tmp_path / "dally").mkdir()
    (tmp_path / "dally/job_submit.lua").write_text("called")
    assert gather(tmp_path / "none.toml").lua == "-- the site's\n"
    call = f'dofile("{tmp_path}/dally/job_submit.lua") -- \xe9\n'
    (tmp_path / "job_submit.lua").write_text(call, encoding="latin-1")
    assert gather(tmp_path / "none.toml").lua == "called"


def configure(local_slurm: LocalSlurm, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration for a local cluster, which all commands of this process then speak to."""
    for name, value in local_slurm.environment.items():
        monkeypatch.setenv(name, value)
    config = folder / "dally.toml"
    config.write_text(
        f'partitions = ["gpu"]\ncluster = "{local_slurm.spec.conf.parent}"\nurl = ""\n'
        f'state_dir = "{folder}"\nprofiles = "realistic"\n'
    )
    return config


def test_facts_are_gathered_from_real_slurm(
    local_slurm: LocalSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = gather(configure(local_slurm, tmp_path, monkeypatch))
    found = examine(site)
    assert len(found) == len(CHECKS)
    assert site.version == local_slurm.version()
    assert site.conf_dir == local_slurm.spec.conf.parent
    assert len(site.managed_nodes) == 8
    assert abs(site.skew_s) < 5
    assert 0 < time.time() - site.booted_s < 600
    assert site.state_dir is not None
    assert site.state_dir.uid == os.geteuid()
    problems = {name for name, finding in found.items() if finding.level is Level.PROBLEM}
    assert problems == {"job_submit"}


MISTAKES = (
    "TopologyPlugin=topology/none",
    "JobRequeue=0",
    "MinJobAge=2",
    "SchedulerParameters=batch_sched_delay=60",
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "JobSubmitPlugins=lua",
    "NodeName=c1 State=CLOUD CPUs=16 RealMemory=64000 Gres=gpu:h100:8",
    "PartitionName=cloud Nodes=c1",
    "SuspendProgram=/bin/true",
    "ResumeProgram=/bin/true",
    "SuspendTime=600",
    "SuspendExcNodes=n[1-8]",
)


def test_mistakes_are_found_on_real_slurm(
    cluster_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lua = own_file("job_submit.lua") + "\n-- changed"
    local_slurm = LocalSlurm(
        LocalClusterSpec(cluster_folder, extra_conf=MISTAKES, lua_files={"job_submit.lua": lua})
    )
    try:
        local_slurm.start()
        results = examine(gather(configure(local_slurm, tmp_path, monkeypatch)))
    finally:
        local_slurm.stop()
    found = {name for name, finding in results.items() if finding.level is not Level.OK}
    assert found >= {"topology plugin", "requeue", "job age", "start delay", "preemption", "job_submit"}
    assert found >= {"checkpoint exit", "hidden"}


def test_after_an_installation_real_slurm_has_no_problems(
    cluster_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_slurm = LocalSlurm(
        LocalClusterSpec(cluster_folder, lua_files={"job_submit.lua": own_file("job_submit.lua")})
    )
    try:
        local_slurm.start()
        config = configure(local_slurm, tmp_path, monkeypatch)
        install(
            plan_install(
                InstallTarget(config, local_slurm.spec.conf.parent, tmp_path, Path("/opt/dally"), "root")
            )
        )
        results = examine(gather(config))
    finally:
        local_slurm.stop()
    assert {name for name, finding in results.items() if finding.level is Level.PROBLEM} == set()


def test_a_lost_slurmctld_is_told_in_a_line(
    local_slurm: LocalSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(local_slurm, tmp_path, monkeypatch)
    local_slurm.stop_controller()
    found = examine(gather(config))
    assert found["slurmctld"].level is Level.PROBLEM
    assert "DOWN" in found["slurmctld"].found
    assert "\n" not in found["slurmctld"].found
