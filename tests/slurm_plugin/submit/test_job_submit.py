"""job_submit.lua and `dally-sbatch` in a real Slurm."""

import pwd
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from slurm_plugin.client.block_topology import SEGMENTS_SINCE
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.request import Request, decode, decode_job
from slurm_plugin.submit.hints import Mode, site_lua

pytestmark = pytest.mark.slurm

WRAPPER = """
import encodings.idna, encodings.utf_8_sig, os, sys
from slurm_plugin.submit.sbatch import main
os.setgroups([])
os.setgid(int(sys.argv.pop(1)))
os.setuid(int(sys.argv.pop(1)))
main()
"""
_OUTPUT = ("--parsable", "--output=/dev/null")
_SCRIPT = "#!/bin/sh\nsleep 600\n"
LUA = (resources.files("slurm_plugin") / "site" / "job_submit.lua").read_text(encoding="utf-8")


class LuaSite:
    """A local cluster with job_submit.lua, and what an ordinary user does there."""

    def __init__(self, local_slurm: LocalSlurm, user: str, exempt: str) -> None:
        self.local_slurm = local_slurm
        self.user = user
        self.exempt = exempt
        self.table = local_slurm.spec.conf.parent / "dally_site.lua"
        (local_slurm.work / "dally.toml").write_text('partitions = ["gpu"]\nurl = ""\n')

    def set_mode(self, mode: Mode, slowdowns: dict[str, float] | None = None) -> None:
        uids = [pwd.getpwnam(self.exempt).pw_uid]
        self.table.write_text(site_lua(["gpu"], uids, mode, slowdowns, 200))

    def submit(self, *options: str, user: str | None = None) -> str:
        """Submit a script that sleeps; the job's number."""
        return self.local_slurm.run(
            "sbatch", *_OUTPUT, *options, user=user or self.user, stdin=_SCRIPT
        ).strip()

    def submit_wrapped(self, *options: str, user: str | None = None) -> str:
        """The same through `dally-sbatch`, which loads as us: users may have no access to this Python."""
        account = pwd.getpwnam(user or self.user)
        words = (sys.executable, "-c", WRAPPER, str(account.pw_gid), str(account.pw_uid))
        return self.local_slurm.run(*words, *_OUTPUT, *options, stdin=_SCRIPT).strip()

    def facts(self, job: str) -> dict[str, str]:
        """What scontrol shows of a job; comments have lines of their own."""
        found: dict[str, str] = {}
        for line in self.local_slurm.run("scontrol", "show", "job", job).splitlines():
            words = [line.strip()] if "Comment=" in line else line.split()
            pairs = (word.partition("=") for word in words)
            found.update({name: value for name, equals, value in pairs if equals})
        return found

    def refusal(self, *options: str) -> str:
        """What sbatch says of a script that it does not submit."""
        done = self.local_slurm.attempt("sbatch", *_OUTPUT, *options, user=self.user, stdin=_SCRIPT)
        assert done.returncode != 0
        return done.stderr

    def reason(self, job: str) -> str:
        return self.facts(job)["Reason"]

    def request(self, job: str) -> Request | None:
        facts = self.facts(job)
        return decode_job(facts.get("Comment", ""), facts.get("AdminComment", ""))

    def scontrol(self, *words: str, user: str | None = None) -> bool:
        """Whether scontrol lets the user do something."""
        return self.local_slurm.attempt("scontrol", *words, user=user or self.user).returncode == 0


@pytest.fixture(scope="module")
def cluster(users: tuple[str, ...]) -> Iterator[LocalSlurm]:
    """One cluster for all tests here: they only submit, and every test cancels its jobs."""
    folder = Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))
    lua = {"job_submit.lua": LUA, "dally_site.lua": site_lua(["gpu"], [])}
    local_slurm = LocalSlurm(LocalClusterSpec(folder, nodes=2, racks=2, lua_files=lua))
    local_slurm.start()
    for node, feature in (("n1", "rack0"), ("n2", "rack1")):
        has = (f"AvailableFeatures={feature}", f"ActiveFeatures={feature}")
        local_slurm.run("scontrol", "update", f"NodeName={node}", *has)
    yield local_slurm
    local_slurm.stop()


@pytest.fixture
def site(cluster: LocalSlurm, users: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Iterator[LuaSite]:
    monkeypatch.setenv("DALLY_CONFIG", str(cluster.work / "dally.toml"))
    site = LuaSite(cluster, *users)
    site.set_mode("hold")
    yield site
    for name in ("root", *users):
        cluster.run("scancel", f"--user={name}")
    cluster.wait_for(lambda: not cluster.run("squeue", "--noheader"), "an empty queue")


def test_a_plain_gpu_job_is_marked_and_held(site: LuaSite) -> None:
    job = site.submit("--gpus=1", "--comment=my words")
    facts = site.facts(job)
    assert (facts["Reason"], facts["Comment"]) == ("JobHeldUser", "my words")
    request = decode(facts["AdminComment"])
    assert request is not None
    assert request == Request(tag=request.tag)
    assert len(request.tag) == 8


@pytest.fixture
def one_hour(site: LuaSite) -> Iterator[None]:
    """The partition lets jobs run for an hour at most."""
    site.local_slurm.run("scontrol", "update", "PartitionName=gpu", "MaxTime=60")
    yield
    site.local_slurm.run("scontrol", "update", "PartitionName=gpu", "MaxTime=INFINITE")


def test_a_job_beyond_its_partitions_time_is_refused_and_told_why(site: LuaSite, one_hour: None) -> None:
    for partition in ((), ("--partition=gpu",)):
        said = site.refusal("--gpus=1", "--time=120", *partition)
        assert "asks for 120 minutes, and partition gpu allows 60 at most (PartitionTimeLimit)" in said


def test_a_job_within_its_partitions_time_is_held(site: LuaSite, one_hour: None) -> None:
    for limit in (("--time=60",), ()):
        assert site.reason(site.submit("--gpus=1", *limit)) == "JobHeldUser"


@pytest.mark.parametrize(
    "options",
    [
        ["--nodes=1"],
        ["--gres=gpu:0"],
        ["--gpus=1", "--partition=other"],
        ["--gpus=1", "--partition=gpu,other"],
        ["--gpus=1", "--exclusive=user"],
        ["--gpus=1", "--constraint=rack0*1"],
        ["--gpus=1", "--contiguous"],
        ["--gpus=1", "--spread-job"],
    ],
)
def test_a_job_that_is_not_dallys_is_left_alone(site: LuaSite, options: list[str]) -> None:
    if "--spread-job" in options and site.local_slurm.version() == (24, 11):
        pytest.skip("slurmctld 24.11.5 ends at sbatch --gpus=1 --spread-job, also without Dally")
    facts = site.facts(site.submit(*options))
    assert facts["Reason"] != "JobHeldUser"
    assert "AdminComment" not in facts


@pytest.mark.parametrize(
    "options",
    [
        ["--gres=gpu:h100:2"],
        ["--gpus-per-node=2"],
        ["--gpus-per-task=1", "--ntasks=2"],
        ["--gpus=1", "--partition=gpu"],
        ["--gpus=1", "--exclude=n1"],
        ["--gpus=1", "--exclusive"],
        ["--nodes=1", "--exclusive"],
        ["--gpus=1", "--constraint=rack0|rack1"],
        ["--gpus=1", "--constraint=[rack0|rack1]"],
        ["--gpus=1", "--nodelist=n1"],
        ["--gpus=1", "--switches=1"],
    ],
)
def test_however_it_asks_for_gpus_a_job_is_held(site: LuaSite, options: list[str]) -> None:
    assert site.reason(site.submit(*options)) == "JobHeldUser"


@pytest.mark.parametrize(
    ("options", "segment"),
    [
        (["--gres=gpu:h100:2"], "1"),
        (["--gpus-per-task=1", "--ntasks=4", "--ntasks-per-node=2"], "1"),
        (["--gpus=4", "--nodes=2"], "1"),
        (["--gpus-per-task=1", "--ntasks=4", "--nodes=2"], "1"),
        (["--gpus=4"], None),
        (["--gpus=4", "--nodes=3"], None),
        (["--gpus-per-task=1", "--ntasks=4"], None),
    ],
)
def test_a_held_job_has_a_segment_if_its_nodes_give_equal_shares(
    site: LuaSite, options: list[str], segment: str | None
) -> None:
    if site.local_slurm.version() < SEGMENTS_SINCE:
        segment = None
    facts = site.facts(site.submit(*options))
    assert (facts["Reason"], facts.get("SegmentSize")) == ("JobHeldUser", segment)


@pytest.mark.parametrize(
    ("options", "held"),
    [
        (["--gpus-per-node=1", "--segment=2"], True),
        (["--gpus-per-node=1", "--segment=1"], True),
        (["--gpus=4", "--segment=2"], True),
        (["--gpus=6", "--segment=2"], False),
        (["--gpus-per-node=1", "--segment=2", "--spread-segments"], True),
        (["--gpus-per-node=1", "--segment=2", "--consolidate-segments"], True),
        (["--gpus-per-node=1", "--spread-segments"], False),
        (["--gpus-per-node=1", "--consolidate-segments"], False),
        (["--gpus-per-node=1", "--segment=1", "--exclusive=topo"], True),
        (["--gpus=6", "--segment=2", "--exclusive=topo"], False),
        (["--exclusive=topo"], False),
    ],
)
def test_a_job_in_segments_is_dallys_unless_nothing_but_slurm_can_place_it(
    site: LuaSite, options: list[str], held: bool
) -> None:
    if site.local_slurm.version() < SEGMENTS_SINCE:
        pytest.skip("job_submit.lua sees no segment before Slurm 25.11")
    facts = site.facts(site.submit("--nodes=4", *options))
    segment = dict(word.removeprefix("--").partition("=")[::2] for word in options).get("segment")
    assert ("AdminComment" in facts, facts.get("SegmentSize")) == (held, segment)


@pytest.fixture
def courses(site: LuaSite) -> Iterator[None]:
    """Two reservations of the user's, side by side."""
    names, run = ("monday", "tuesday"), site.local_slurm.run
    what = ("StartTime=now+1hour", "Duration=60", "Nodes=ALL", "Flags=OVERLAP", f"Users={site.user}")
    for name in names:
        run("scontrol", "create", f"ReservationName={name}", *what)
    yield
    run("scancel", f"--user={site.user}")
    for name in names:
        run("scontrol", "delete", f"ReservationName={name}")


def test_a_job_of_a_reservation_is_held_with_its_segments_and_its_user_may_name_another(
    site: LuaSite, courses: None
) -> None:
    segment = () if site.local_slurm.version() < SEGMENTS_SINCE else ("--segment=2",)
    job = site.submit("--nodes=2", "--gpus-per-node=1", "--reservation=monday", *segment)
    facts = site.facts(job)
    assert (facts["Reason"], facts["Reservation"]) == ("JobHeldUser", "monday")
    assert facts.get("SegmentSize") == ("2" if segment else None)
    assert site.scontrol("update", f"JobId={job}", "ReservationName=tuesday")
    assert not site.scontrol("update", f"JobId={job}", "ReservationName=dally_1_1")
    facts = site.facts(job)
    assert (facts["Reason"], facts["Reservation"]) == ("JobHeldUser", "tuesday")


def test_where_a_job_may_run_goes_into_the_mark(site: LuaSite) -> None:
    request = site.request(site.submit("--gpus=2", "--nodelist=n[1-2]", "--switches=1@0:30"))
    assert request is not None
    assert (request.nodes, request.switches, request.switch_wait_s) == ("n[1-2]", 1, 30)
    without = site.request(site.submit("--gpus=1", "--comment=dally:nodes=n1&switches=2"))
    assert without is not None
    assert (without.nodes, without.switches) == ("", 0)


def test_heterogeneous_jobs_are_left_alone(site: LuaSite) -> None:
    leader = site.submit("--gpus=1", ":", "--gpus=1")
    assert "AdminComment" not in site.local_slurm.run("scontrol", "show", "job", leader)


def test_plain_jobs_of_root_and_exempt_users_are_left_alone(site: LuaSite) -> None:
    for user in ("root", site.exempt):
        assert "AdminComment" not in site.facts(site.submit("--gpus=1", user=user))


@pytest.mark.parametrize("hold", [True, False])
def test_a_job_that_found_no_controller_goes_to_slurm(site: LuaSite, hold: bool) -> None:
    (site.local_slurm.work / "dally.toml").write_text('partitions = ["gpu"]\nurl = "http://127.0.0.1:9"\n')
    facts = site.facts(site.submit_wrapped("--gpus=1", "--comment=my words", *(["-H"] if hold else [])))
    assert (facts["Reason"] == "JobHeldUser", facts["Comment"]) == (hold, "my words")
    assert "AdminComment" not in facts


@pytest.mark.parametrize("user", ["its own", "root"])
def test_the_wrappers_mark_moves_to_where_users_cannot_write(site: LuaSite, user: str) -> None:
    job = site.submit_wrapped(
        "--gpus=2", "--model=vgg11", "--checkpoint-signal=USR1", "--comment=my words",
        "--progress=/data/a b/%j.json",
        user="root" if user == "root" else None,
    )  # fmt: skip
    request = site.request(job)
    assert request is not None
    assert request == Request("vgg11", "USR1", tag=request.tag, progress="/data/a b/%j.json")
    assert len(request.tag) == 16
    assert site.facts(job)["Comment"] == "my words"
    assert site.reason(job) == "JobHeldUser"


def test_a_plan_moves_with_the_mark(site: LuaSite) -> None:
    shape = "layers=2,hidden=64,heads=8,ffn=256,vocabulary=99,gated=0,tied=1"
    job = site.submit_wrapped(
        "--gpus=2", f"--model={shape}", "--parallel=tp=2,sequence=4096,precision=fp8", "--global-batch=8"
    )
    request = site.request(job)
    assert request is not None
    assert request == Request(shape, tag=request.tag, plan="tp=2,sequence=4096,precision=fp8", batch=8)


def test_without_the_lua_the_comment_itself_says_everything(site: LuaSite) -> None:
    site.table.unlink()
    job = site.submit_wrapped("--gpus=2", "--model=vgg11", "--comment=my words")
    request = site.request(job)
    assert request is not None
    assert request.model == "vgg11"
    assert site.facts(job)["Comment"].endswith(" my words")
    assert site.reason(job) == "JobHeldUser"


def test_the_wrapper_submits_arrays_dependencies_and_wrapped_commands(site: LuaSite) -> None:
    first = site.submit_wrapped("--gpus=1")
    array = site.submit_wrapped(
        "--gpus=1", "--array=0-2%1", f"--dependency=afterok:{first}", "--wrap=sleep 1"
    )
    facts = site.facts(array)
    assert (facts["ArrayTaskId"], facts["ArrayTaskThrottle"]) == ("0-2%1", "1")
    assert facts["Dependency"].startswith(f"afterok:{first}")
    assert site.request(array) is not None


def test_sbatch_does_not_read_a_variable_for_the_comment(
    site: LuaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_COMMENT", "from the environment")
    assert "Comment" not in site.facts(site.submit("--gpus=1"))


@pytest.mark.parametrize(
    "comment", ["dally:grace_s=soon", "dally:model=a;b", "dally:plan=tp;8", "dally:held=2", "dally:nonsense"]
)
def test_a_malformed_mark_is_refused_with_a_message(site: LuaSite, comment: str) -> None:
    done = site.local_slurm.attempt(
        "sbatch", "--gpus=1", f"--comment={comment}", "--wrap=true", user=site.user
    )
    assert done.returncode == 1
    assert f"dally: comment with {comment.removeprefix('dally:')} is no request to Dally" in done.stderr


def test_a_marked_job_that_is_not_dallys_is_not_left_held(site: LuaSite) -> None:
    facts = site.facts(site.submit("--hold", "--nodes=1", "--comment=dally:model=a my words"))
    assert (facts["Comment"], facts["Reason"] != "JobHeldUser") == ("my words", True)


@pytest.mark.parametrize("asked", [["--nodes=1"], ["--gpus=1", "--partition=other"]])
def test_a_user_cannot_leave_a_mark_on_a_job_that_is_not_dallys(site: LuaSite, asked: list[str]) -> None:
    marks = "dally:plain=1 dally:tag=aa&signal=USR2"
    job = site.submit("--hold", *asked, f"--comment={marks} dally: my words")
    assert (site.request(job), site.facts(job)["Comment"]) == (None, "my words")
    for comment in (marks, "dally:", "dally:held=1"):
        assert not site.scontrol("update", f"JobId={job}", f"Comment={comment}")
    assert site.scontrol("update", f"JobId={job}", "Comment=other words")
    assert (site.request(job), site.facts(job)["Comment"]) == (None, "other words")


@pytest.mark.parametrize(
    "change",
    [
        "Priority=100000", "NodeList=n1", "Features=rack0*1", "Partition=other", "Contiguous=1",
        "Switches=1", "AdminComment=dally:model=forged", "Comment=dally:tag=aa",
    ],
)  # fmt: skip
def test_a_user_cannot_take_his_job_from_dally(site: LuaSite, change: str) -> None:
    job = site.submit("--gpus=1")
    before = site.facts(job)
    assert not site.scontrol("update", f"JobId={job}", change)
    assert site.facts(job) == before


def test_a_user_cannot_release_his_job(site: LuaSite) -> None:
    job = site.submit("--gpus=1")
    assert not site.scontrol("release", job)
    assert site.reason(job) == "JobHeldUser"


@pytest.mark.parametrize(
    "change",
    ["TimeLimit=5", "JobName=a", "NumNodes=2", "StartTime=now+1hour", "ExcNodeList=n1", "Features=rack1"],
)
def test_a_user_may_change_what_the_controller_reads_anew(site: LuaSite, change: str) -> None:
    job = site.submit("--gpus=2", "--time=10")
    assert site.scontrol("update", f"JobId={job}", change)
    assert site.reason(job) == "JobHeldUser"


def test_an_exempt_user_may_release_a_job(site: LuaSite) -> None:
    job = site.submit_wrapped("--gpus=1", user=site.exempt)
    assert site.reason(job) == "JobHeldUser"
    assert site.scontrol("release", job, user=site.exempt)
    assert site.reason(job) != "JobHeldUser"


def test_root_may_place_and_release_a_job(site: LuaSite) -> None:
    job = site.submit("--gpus=1")
    assert site.scontrol("update", f"JobId={job}", "NodeList=n2", user="root")
    assert site.scontrol("release", job, user="root")
    site.local_slurm.wait_for(lambda: site.facts(job)["NodeList"] == "n2", "the job to run on n2")


@pytest.mark.parametrize("comment", ["", "my words"])
def test_a_users_hold_is_kept_in_the_comment_until_he_releases_it(site: LuaSite, comment: str) -> None:
    job = site.submit("--gpus=1", *([f"--comment={comment}"] if comment else []))
    seen = []
    for verb in ("hold", "release", "hold"):
        assert site.scontrol(verb, job)
        request = site.request(job)
        assert request is not None
        seen.append((request.held, site.reason(job)))
    assert seen == [(True, "JobHeldUser"), (False, "JobHeldUser"), (True, "JobHeldUser")]
    assert site.facts(job)["Comment"].endswith(comment)


def test_a_new_comment_does_not_end_a_users_hold(site: LuaSite) -> None:
    job = site.submit("--gpus=1", "--hold")
    assert site.scontrol("update", f"JobId={job}", "Comment=my words")
    request = site.request(job)
    assert request is not None
    assert request.held
    assert site.facts(job)["Comment"] == "dally:held=1 my words"


@pytest.mark.parametrize("text", ["nonsense(", "return 3", "return {}", ""])
def test_a_broken_table_blocks_nobody(site: LuaSite, text: str) -> None:
    site.table.write_text(text)
    job = site.submit("--gpus=1")
    assert site.reason(job) != "JobHeldUser"
    assert site.scontrol("update", f"JobId={job}", "JobName=a")


@pytest.mark.parametrize(
    ("options", "switches"),
    [
        (["--time=10", "--comment=dally:model=vgg11"], "1@00:02:30"),
        (["--comment=dally:model=vgg11"], "1@00:03:20"),
        (["--time=10", "--comment=dally:model=unknown"], None),
        (["--time=10", "--switches=1@1", "--comment=dally:model=vgg11"], "1@00:01:00"),
        (["--time=10", "--nodelist=n1", "--comment=dally:model=vgg11"], None),
    ],
)
def test_a_hint_waits_as_long_as_its_model_is_worth(
    site: LuaSite, options: list[str], switches: str | None
) -> None:
    site.set_mode("hint", {"vgg11": 1.5})
    facts = site.facts(site.submit("--hold", "--gpus=1", *options))
    assert facts.get("Switches") == switches
    assert facts["Reason"] != "JobHeldUser"


@pytest.mark.parametrize(
    ("model", "gpus", "segment"),
    [
        ("vgg11", "--gpus-per-node=1", None),
        ("resnet18", "--gpus-per-node=1", "1"),
        ("resnet18", "--gpus=3", None),
        ("unknown", "--gpus-per-node=1", None),
    ],
)
def test_a_hint_lets_a_model_that_loses_nothing_have_any_blocks(
    site: LuaSite, model: str, gpus: str, segment: str | None
) -> None:
    if site.local_slurm.version() < SEGMENTS_SINCE:
        segment = None
    site.set_mode("hint", {"vgg11": 1.5, "resnet18": 1.01})
    facts = site.facts(site.submit("--hold", "--nodes=2", gpus, f"--comment=dally:model={model}"))
    assert facts.get("SegmentSize") == segment
