"""No word that somebody chose is taken for structure, whatever of Slurm's it is printed by."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.traces import sacct
from dally.traces.rows import JobCollector
from slurm_plugin.client.genuine import genuine_records, genuine_rows
from slurm_plugin.client.job_text import GENUINE, JobLines, read_details
from slurm_plugin.client.node_text import read_nodes, read_reservations
from slurm_plugin.client.orders import Rehold, Reserve, Signal
from slurm_plugin.client.priority_factors import read_fair_shares
from slurm_plugin.client.resource_limits import ASSOCIATION_COLUMNS, qos_columns, read_limits, with_spent
from slurm_plugin.client.scontrol import answers
from slurm_plugin.client.slurm import SlurmUnavailableError
from tests.slurm_plugin.client.test_command_line import SCONTROL, commands
from tests.slurm_plugin.client.test_job_text import pending, printed

KEY = "k3y_Of-1"
_OTHERS = (
    *("\n", "\r", "\x0b", "\x1c", "\u2028", " ", "|", "=", ",", "'", '"', "\\n", "%", "x"),
    *("NodeName=n2 State=IDLE Gres=gpu:9", "ReservationName=no StartTime=1 EndTime=9 Nodes=n2"),
    *("ReservationName=no StartTime=other1 EndTime=other9 Nodes=n2", "BootTime=other1"),
    *("2|root|bob||", "2|bob|bob|0.5", "9||||", "lab|bob||", "Account=lab UserName=bob(2)", "GrpWall=N(9)"),
    *("QOS=normal(1) GrpWall=1(9)", "Ea1\n", "Qa1", "invalid keyword: end-of-order\n"),
    *(" SubmitTime=17 ", " AllocNode:Sid=head:9 ReqNodeList= ExcNodeList=n9 NodeList=n1 "),
    *(" MinCPUsNode=1 ", "JobId=1 JobName=x UserId=", "   Nodes=n2 CPU_IDs=0 Mem=1 GRES=gpu:4"),
    "1795943562|9|bob|1|9|COMPLETED",
)
WORDS = st.lists(st.sampled_from(_OTHERS), max_size=8).map("".join)


def nodes(word: str) -> object:
    text = (
        f"NodeName=n1 Gres=gpu:4 State=MIXED BootTime={KEY}17 Comment={word} Reason={word} [root@{KEY}17]\n"
        f"NodeName=n2 Gres=gpu:4 State=DOWN BootTime={KEY}17 Comment={word}\n"
        "NodeName=cloud Gres=gpu:4 State=IDLE+CLOUD+POWERED_DOWN BootTime=None\n"
    )
    return [each for each in read_nodes(genuine_records(text, KEY, "NodeName")) if each.name != "no"]


def reservations(word: str) -> object:
    text = "".join(
        f"ReservationName={name} StartTime={KEY}17 EndTime={KEY}99 Nodes=n1 Accounts={word} Comment={word}\n"
        for name in ("a", "b")
    )
    return read_reservations(genuine_records(text, KEY, "ReservationName", all_timed=True))


def limits(word: str) -> object:
    def row(account: str, user: str, gpus: str) -> str:
        values = {"Account": account, "User": user, "GrpTRES": gpus}
        return "|".join(values.get(name, "") for name in ASSOCIATION_COLUMNS.split(","))

    rows = f"1|{row(word, '', '')}\n2|{row('lab', '', 'gres/gpu=4')}\n3|{row('lab', word, '')}\n"
    qos = f"1|normal{'|' * qos_columns((22, 5)).count(',')}\n"
    try:
        found = read_limits(genuine_rows("1\n", qos), genuine_rows("1\n2\n3\n", rows), (22, 5))
    except SlurmUnavailableError:  # one of these lines is no row: none is believed
        return (4.0, frozenset(["lab"])), []
    spent = with_spent(found, f"Account={word} UserName=\nAccount=lab UserName= GrpWall=N(1)\n")
    (limit,) = found.limits
    return (limit.most, limit.accounts), [each.spent for each in spent.limits if each.spent > 1]


def shares(word: str) -> object:
    try:
        found = read_fair_shares(genuine_rows("1\n2\n", f"1|{word}|alice|1.0\n 2| lab|bob|0.25\n"))
    except SlurmUnavailableError:
        return 0.25
    return found["lab", "bob"]


def lines(word: str) -> object:
    text = printed(KEY, *(pending(n, Comment=word, Name=word, WCKey=word, AllocNodes=word) for n in (1, 2)))
    return {n: (line["State"], line["UserName"]) for n, line in JobLines().read(text, KEY).items()}


def details(word: str) -> object:
    said = (
        f"JobId=1 JobName={word} UserId=alice(1) Account={word} WCKey={word} SubmitTime={GENUINE}17 "
        f"AllocNode:Sid={word}:77 ReqNodeList=(null) ExcNodeList=n3 NodeList=n1 NumNodes=1 "
        f"   Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:2 MinCPUsNode=1 MinMemoryNode=1M Command={word} "
    )
    job = {"JobID": "1", "State": "RUNNING", "Name": word, "AllocNodes": word, "NodeList": "n1"}
    found = read_details(said, JobLines().read(printed(KEY, job), KEY)[1])
    return replace(found, spreads_segments=False) if found else found


def history(word: str) -> object:
    header = "Submit|JobIDRaw|User|Start|ElapsedRaw|State|AllocTRES|ReqTRES|TimelimitRaw|Account|JobName\n"
    row = "{0}1795943{1}00|{1}|alice|{0}1795943{1}01|60|COMPLETED|gres/gpu=1|gres/gpu=1|5|{2}|{2}\n"
    found = JobCollector("sacct", skip_bad=True)
    sacct.read(header + "".join(row.format(KEY, number, word) for number in (1, 2)), found)
    return [(job.job_id, job.user, job.duration_s) for job in found.jobs]


def orders(word: str) -> object:
    mark = f"end-of-order-{KEY}"
    said = f"invalid keyword: {mark}\n{word}invalid keyword: {mark}\ninvalid keyword: {mark}\n"
    return [said and said[1:] for said in answers(said, 2, mark) or ()][1:]


@pytest.mark.parametrize("read", [nodes, reservations, limits, shares, lines, details, history, orders])
def test_a_word_is_a_word(read: Callable[[str], object]) -> None:
    usual = read("word")

    @settings(max_examples=300, deadline=None)
    @given(WORDS)
    def holds(word: str) -> None:
        assert read(word) == usual

    holds()


def test_no_command_line_tells_what_marks_the_words_of_slurm(tmp_path: Path) -> None:
    tell = 'echo "$0 $@" >> argv; echo "$SQUEUE_FORMAT2 $SLURM_TIME_FORMAT" >> secrets'
    config = "echo AccountingStorageEnforce = limits; echo ClusterName = c"
    scontrol = f'{tell}; case "$*" in *config) {config};; *) {SCONTROL.replace("exit 1", "")};; esac'
    slurm = commands(
        tmp_path,
        squeue=f"""{tell}; case "$*" in *--json*) echo '{{"jobs": [{{"job_id": 1}}]}}' ;; esac""",
        sacct=f"{tell}; echo 'Submit|JobIDRaw|ElapsedRaw|State|AllocTRES'",
        scancel=tell,
        sacctmgr=tell,
        sshare=tell,
        scontrol=scontrol,
    )
    slurm.look()
    slurm.limits()
    slurm.fair_shares()
    slurm.ended_jobs(("gpu",), 1)
    slurm.run([Rehold("1"), Signal("1", "USR1"), Reserve("dally_1", ("n1",), "alice")])
    argv, told = ((tmp_path / name).read_text() for name in ("argv", "secrets"))
    assert {line.split()[0].rpartition("/")[2] for line in argv.splitlines()} == {
        *("squeue", "scontrol", "sacct", "sacctmgr", "scancel", "sshare")
    }
    keys = {*re.findall(r"(?:\bJobID:Q|^ )([\w-]{8})(?:,|%s$)", told, re.MULTILINE)}
    assert len(keys) >= 4  # of squeue, of nodes, of reservations and of sacct
    assert not [key for key in keys if key in argv]
    assert "end-of-order" not in argv


def test_answers_that_somebody_forged_are_none(tmp_path: Path) -> None:
    forged = "cat > /dev/null; for i in 1 2 3; do echo 'invalid keyword: end-of-order' >&2; done; exit 1"
    with pytest.raises(SlurmUnavailableError, match="scontrol ended early"):
        commands(tmp_path, scontrol=forged).run([Rehold("1")])
