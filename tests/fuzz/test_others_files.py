"""Files that others laid, in the places of those that commands read: refused in one line, printed as text."""

import gzip
import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
import pytest
from click.testing import CliRunner

from dally.commands import main
from profiler.commands import main as profile_models
from slurm_plugin.controller.journal import NAME
from tests.analysis.report.folders import simple_run
from tests.fuzz.formats import COMMON_CSV, EXPLICIT_TOML, FORMATS, PROFILE, given
from tests.fuzz.limits import TooLongError, bounded_memory
from tests.fuzz.test_formats import MOST_BYTES, wrong
from tests.profiler.recorded.jobs import entry, write

HANGS_S = 60.0
FLOOD = b"[" + b"[]," * 6_000_000 + b"[]]"
FORGED = "\x1b[2J\x9b2J\nFORGED [link=http://forged]x[/link]"
LAID: Mapping[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "18 MB of lists": lambda path: path.write_bytes(FLOOD),
}
OTHERS = {
    **{name: form for name, form in FORMATS.items() if form.file not in ("out", NAME)},
    "naming rules": given(
        "rules.toml",
        b'[models]\n"*" = "vgg11"\n',
        lambda path: run(main, "advise", "trace.csv", "--models", str(path), "--profiles", "dally"),
    ),
}
"""All but what Slurm prints, and the journal, which lies in a folder of the controller's own."""


@contextmanager
def not_hanging() -> Iterator[None]:
    def hangs(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def run(group: click.Group, *argv: str) -> str:
    result = CliRunner().invoke(group, argv)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.mark.parametrize("laid", LAID)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_plain_file_or_too_large_is_refused_in_one_line(
    name: str, laid: str, tmp_path: Path
) -> None:
    form = OTHERS[name]
    (tmp_path / "made").mkdir()
    for file, content in form.files(tmp_path / "made").items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / form.file).unlink()
    LAID[laid](tmp_path / form.file)
    with not_hanging(), bounded_memory(MOST_BYTES):
        assert not wrong(form.read, tmp_path / form.file)


def test_no_file_puts_escapes_or_lines_of_its_own_on_the_terminal(tmp_path: Path) -> None:
    """Each text of a run, a record, a profile and a trace has both in it, and the markup of tables."""
    folder, record = tmp_path / "run", tmp_path / f"learn{FORGED.replace('/', '')}"
    simple_run(folder, "fifo", [0.0, 50.0])
    facts = json.loads((folder / "run.json").read_text())
    facts["policy"]["spec"] = f"fifo{FORGED}"
    (folder / "run.json").write_text(json.dumps(facts))
    events = [
        {"t": 1.0, "event": f"odd{FORGED}", "job": "job-1"},
        {"t": 2.0, "event": "end", "job": "job-1", "status": FORGED},
        {"t": 3.0, "event": "preempt", "job": "job-1", "by": [FORGED], "reason": FORGED},
        {"t": 4.0, "event": "wait", "job": "job-1", "until": None, "level": FORGED, "reason": FORGED},
        {"t": 5.0, "event": "start", "job": "other", "by": ["job-1"], "reason": FORGED},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    jobs = (folder / "jobs.csv").read_text().splitlines()
    names = jobs[0].split(",")
    rows = [dict(zip(names, row.split(","), strict=True)) for row in jobs[1:]]
    marked = [{**row, "model": f'"m{FORGED}"', "status": f'"{FORGED}"', "end_s": ""} for row in rows]
    text = "\n".join([jobs[0], *(",".join(row.values()) for row in marked)])
    (folder / "jobs.csv").write_text(text + "\n")
    record.mkdir()
    step = [entry("1", "nccl:all_reduce", [1_000_000])]
    write(record, 0, 2, {"1": ([0, 1], FORGED)}, step, lacks=FORGED, host=FORGED)
    (record / "rank-00001.json.gz").write_bytes(gzip.compress(b"7"))
    profile = json.loads(PROFILE.read_text())
    profile["model"]["name"] = profile["env"]["gpu_type"] = FORGED
    profile["quality"] = {"flags": [FORGED]}
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    trace = re.sub(rb"(?<=,)(ann|lab|vgg11|COMPLETED|h100)(?=,)", f'"{FORGED}"'.encode(), COMMON_CSV)
    (tmp_path / "trace.csv").write_bytes(trace)
    told = json.dumps(FORGED)[1:-1].encode()
    (tmp_path / "cluster.toml").write_bytes(b'name = "%s"\n' % told + EXPLICIT_TOML.replace(b"rack1", told))
    for group, *argv in (
        (main, "why", "job-1", "--run", str(folder)),
        (main, "why", "job-9", "--run", str(folder)),
        (main, "report", str(folder)),
        (main, "trace", str(tmp_path / "trace.csv")),
        (main, "trace", str(tmp_path / "trace.csv"), "--format", "sacct"),
        (main, "cluster", str(tmp_path / "cluster.toml")),
        (main, "models", "--profiles", str(tmp_path / "profile.json")),
        (main, "simulate", "--trace", str(tmp_path / "trace.csv"), "--policy", "fifo", "--cluster", "demo"),
        (profile_models, "show", str(tmp_path / "profile.json")),
        (profile_models, "learn", str(record)),
        (profile_models, "learn", str(tmp_path)),
    ):
        said = run(group, *argv, *(("--out", str(tmp_path / "out")) if argv[0] == "simulate" else ()))
        assert said, argv
        lines = said.split("\n")
        assert not [line for line in lines if line.startswith("FORGED") or not line.isprintable()], (
            argv,
            said,
        )
