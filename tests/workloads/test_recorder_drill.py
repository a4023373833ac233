"""Whatever goes wrong around the recorder, the job trains, ends by itself and says nothing of it."""

import gzip
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from dally.jobs.progress import parse_report
from profiler.commands import main
from profiler.recorded.record import RecordedRun, read_run
from tests.patience import LONGEST_S
from tests.workloads.imitated_torch import job, write_torch
from workloads.recorder import INSIDE, environment

RANK = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500"}


def python(
    folder: Path,
    program: str,
    options: tuple[str, ...] = (),
    prefix: tuple[str, ...] = (),
    variables: Mapping[str, str] = RANK,
    recorded: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program under the recorder, with what lies in `folder` on its path, and records below it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "DALLY"))}
    own = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    if recorded:
        own |= environment(Path(variables.get("RECORDS", folder / "records")), own)
    return subprocess.run(
        [*prefix, sys.executable, *options, "-c", program],
        env={**inherited, **own},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def assert_trained(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def records(folder: Path) -> RecordedRun:
    return read_run(folder / "records")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_torch(tmp_path)
    return tmp_path


def test_a_job_is_recorded(folder: Path) -> None:
    assert_trained(python(folder, job()))
    found = records(folder)
    assert (found.folder.name, found.notes) == ("run-0-batch-0-29500", ())
    assert [(record.steps, len(record.step)) for record in found.records] == [(20, 1)]


def test_a_folder_that_cannot_be_made_ends_the_record_alone(folder: Path) -> None:
    (folder / "file").touch()
    (folder / "link").symlink_to(folder)
    for place in ("/proc/records", "/dev/full", str(folder / "file"), str(folder / "link")):
        done = python(folder, job(), variables={**RANK, "RECORDS": place})
        assert (done.returncode, done.stdout) == (0, "trained\n")
        told = f"dally: nothing is recorded: {place}: it is no folder\n"
        assert done.stderr == ("" if place.startswith("/proc") else told)


def test_a_recorder_that_is_not_there_is_not_missed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for inside in (folder / "nowhere", folder / "broken"):
        monkeypatch.setattr("workloads.recorder.INSIDE", inside)
        if inside.name == "broken":
            inside.mkdir()
            (inside / "sitecustomize.py").write_text((INSIDE / "sitecustomize.py").read_text())
            (inside / "dally_recorder.py").write_text("raise OSError('half installed')")
        done = python(folder, "import torch.distributed; print('trained')")
        assert_trained(done)


def test_a_full_disk_ends_the_record_and_leaves_nothing_half_written(folder: Path) -> None:
    place = folder / "small"
    place.mkdir()
    fill = f"mount -t tmpfs -o size=64k none {place} && cat /dev/zero > {place}/zeros 2> /dev/null"
    script = f'{fill}; "$@" && ls {place} {place}/run*'
    unshare = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    done = python(folder, job(), prefix=unshare, variables={**RANK, "RECORDS": str(place)})
    assert (done.returncode, done.stderr) == (0, "")
    run = "run-0-batch-0-29500"
    assert done.stdout.split() == ["trained", f"{place}:", run, "zeros", f"{place}/{run}:"]


def test_a_file_system_that_hangs_keeps_no_job_from_its_end(folder: Path) -> None:
    """Who opens a FIFO to write waits until somebody reads it; nobody ever does."""
    run = folder / "records" / "run-0-batch-0-29500"
    hang = f"os.makedirs({str(run)!r}); os.mkfifo(f'{run}/rank-00000.json.{{os.getpid()}}.part')"
    assert_trained(python(folder, job(before=hang)))


@pytest.mark.parametrize(
    ("version", "dump", "variable", "told"),
    [
        ("2.13.0+cu130", "_dump_fr_trace_json", "TORCH_FR_BUFFER_SIZE", ""),
        ("2.3.1", "_dump_nccl_trace_json", "TORCH_NCCL_TRACE_BUFFER_SIZE", ""),
        ("2.0.1", "_none", "TORCH_NCCL_TRACE_BUFFER_SIZE", "has no Flight Recorder that can be read"),
        ("a-vendors-own", "_none", "TORCH_FR_BUFFER_SIZE", "has no Flight Recorder that can be read"),
    ],
)
def test_every_version_of_torch_trains_and_learn_tells_what_is_missing(
    tmp_path: Path, version: str, dump: str, variable: str, told: str
) -> None:
    write_torch(tmp_path, version, dump)
    assert_trained(python(tmp_path, job(after=f"assert os.environ[{variable!r}] == '20000'")))
    said = CliRunner().invoke(main, ["learn", str(tmp_path / "records")])
    assert said.exit_code == 0, said.output
    assert told in said.output
    assert "median of 20" in said.output


@pytest.mark.parametrize("dump", ["_dump_nccl_trace_json", "_dump_fr_trace_json"])
def test_of_two_flight_recorders_the_one_that_saw_the_training_is_read(tmp_path: Path, dump: str) -> None:
    """PyTorch 2.11 with CUDA has one for NCCL and one for all else."""
    both = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
    write_torch(tmp_path, dump=dump, empty=tuple(each for each in both if each != dump))
    assert_trained(python(tmp_path, job()))
    assert [len(record.collectives) for record in records(tmp_path).records] == [20]


def test_what_a_rank_starts_or_forks_is_no_rank(folder: Path) -> None:
    """A fork that ends as Python does, and a program of the rank that trains, too."""
    other = job(after="adam.step(); print('must not count')")
    (folder / "other.py").write_text(other)
    starts = f"""
import subprocess
if not os.fork(): [adam.step() for _ in range(30)]; sys.exit()
os.wait()
subprocess.run([sys.executable, {str(folder / "other.py")!r}], check=True, stdout=subprocess.DEVNULL)
"""
    assert_trained(python(folder, job(after=starts)))
    assert [record.steps for record in records(folder).records] == [20]


@pytest.mark.parametrize("option", ["-S", "-I", "-E"])
def test_a_python_that_reads_no_path_runs_unrecorded(folder: Path, option: str) -> None:
    done = python(folder, "import sys; print('dally_recorder' in sys.modules)", (option,))
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_program_without_torch_pays_nothing(folder: Path) -> None:
    """It loads no more modules than Python's own search, and has no thread more."""
    program = "import sys, threading; print(*sorted(sys.modules), threading.active_count())"
    told = {
        recorded: set(
            python(folder, program, recorded=recorded, variables={"SLURM_PROCID": "0"}).stdout.split()
        )
        for recorded in (False, True)
    }
    search = {"importlib", "importlib._bootstrap", "importlib._bootstrap_external", "importlib.machinery"}
    assert told[True] - told[False] <= {"sitecustomize", "warnings", *search}
    assert "1" in told[True]


def test_a_users_own_sitecustomize_runs_under_its_name(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("print('own'); FOUND = True")
    done = python(folder, "import sitecustomize; print(sitecustomize.FOUND)")
    assert (done.stdout, done.stderr) == ("own\nTrue\n", "")


def test_a_users_package_sitecustomize_that_fails_is_told_as_python_tells_it(folder: Path) -> None:
    (folder / "sitecustomize").mkdir()
    (folder / "sitecustomize" / "__init__.py").write_text("raise RuntimeError('mine')")
    told = [python(folder, "print('trained')", recorded=recorded) for recorded in (False, True)]
    assert told[0].stderr == told[1].stderr
    assert "RuntimeError: mine" in told[1].stderr


def test_a_sitecustomize_that_looks_for_the_next_one_does_not_run_in_circles(folder: Path) -> None:
    """As those of tracers do: they take their folder off the path and import the module again."""
    tracer = folder / "tracer"
    tracer.mkdir()
    (tracer / "sitecustomize.py").write_text(
        "import sys\nprint('tracer')\nsys.path.remove(__file__.rpartition('/')[0])\n"
        "del sys.modules['sitecustomize']\nimport sitecustomize\n"
    )
    (folder / "sitecustomize.py").write_text("print('own')")
    done = python(folder, job(), variables={**RANK, "PYTHONPATH": f"{tracer}:{folder}"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "tracer\nown\ntrained\n", "")
    assert len(records(folder).records) == 1


@pytest.mark.parametrize("restart", [{"SLURM_RESTART_COUNT": "1"}, {}])
def test_a_requeued_job_with_fewer_ranks_is_read(folder: Path, restart: dict[str, str]) -> None:
    """Also where nothing tells the runs apart but the time."""
    for rank in "012":
        assert_trained(python(folder, job(), variables={**RANK, "RANK": rank, "WORLD_SIZE": "3"}))
    as_of_one_run(folder / "records" / "run-0-batch-0-29500")
    assert_trained(python(folder, job(), variables={**RANK, **restart}))
    found = records(folder)
    assert [(record.rank, record.world) for record in found.records] == [(0, 1)]
    other = "other runs: run-0-batch-0-29500" if restart else "ranks 1, 2 left records of an earlier run"
    assert other in found.notes[0]


def as_of_one_run(folder: Path) -> None:
    """Have the ranks of a run, which the test ran one after the other, begin together."""
    paths = sorted(folder.glob("*.gz"))
    both = [gzip.decompress(path.read_bytes()).split(b"\n", 1) for path in paths]
    first = min(json.loads(about)["begun_ns"] for about, _ in both)
    for path, (about, trace) in zip(paths, both, strict=True):
        path.write_bytes(
            gzip.compress(json.dumps({**json.loads(about), "begun_ns": first}).encode() + b"\n" + trace)
        )


def recorder_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recorder_under_test", INSIDE / "dally_recorder.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_message_sent_by_named_arguments_is_sent(folder: Path) -> None:
    """PyTorch takes the tensors, the rank and the tag of a message by position or by name."""
    sends = "assert torch.distributed.group.send(tensors=[], peer=1, tag=0) == 'sent', 'not sent'"
    assert_trained(python(folder, job(after=sends)))


def test_the_first_rank_tells_how_long_its_last_steps_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the median, by the job's number as `dally queue` shows it."""
    monkeypatch.setenv("DALLY_STEPS", f"{tmp_path}/records/steps-%j.json")
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    recorder = recorder_module().RankRecorder(tmp_path)
    recorder._about["rank"] = 0
    times_s = (0.0, *range(10, 20), 20.5, 21.0, 30.0)
    recorder.steps.extend(round(each * 1e9) for each in times_s)
    recorder._tell_steps_if_due()
    (file,) = (tmp_path / "records").iterdir()
    assert file.name == "steps-17_3.json"
    report = parse_report(file.read_bytes(), 0.0, "17_3")
    assert (report.step_s, report.samples, report.t) == (1.0, 0.0, 30.0)


def test_a_link_that_another_user_laid_is_not_followed(tmp_path: Path) -> None:
    """Under the names that are easily known: the job's number, its process and the record's name."""
    shared, owned = tmp_path / "records", tmp_path / "precious"
    owned.write_text("precious")
    run = shared / "run-0-batch-0-0"
    run.mkdir(parents=True)
    for known in (shared / f".steps-17.json.{os.getpid()}", run / f"rank-00000.json.{os.getpid()}.part"):
        known.symlink_to(owned)
    recorder = recorder_module().RankRecorder(shared)
    recorder._about["rank"] = 0
    recorder.steps.extend([10**9, 2 * 10**9])
    recorder.write_step_time(shared / "steps-17.json")
    recorder.write()
    assert owned.read_text() == "precious"
    assert {path.name for path in run.iterdir() if not path.is_symlink()} == {"rank-00000.json.gz"}
    assert (shared / "steps-17.json").is_file()


def test_a_pipe_among_the_records_is_told_and_not_waited_for(folder: Path) -> None:
    assert_trained(python(folder, job()))
    os.mkfifo(folder / "records" / "run-0-batch-0-29500" / "rank-00001.json.gz")
    assert "no plain file" in records(folder).notes[0]


class Raising:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def fails(*_: object, **__: object) -> None:
    raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    "broken",
    [
        {"torch.distributed": Raising()},
        {"torch.optim.optimizer": SimpleNamespace(register_optimizer_step_post_hook=fails)},
        {"torch.distributed": SimpleNamespace(is_initialized=fails)},
        {"torch.distributed": SimpleNamespace(is_initialized=lambda: True, distributed_c10d=Raising())},
        {"torch._C._distributed_c10d": Raising()},
    ],
)
def test_whatever_raises_in_it_the_recorder_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any]
) -> None:
    module = recorder_module()
    for name, value in broken.items():
        monkeypatch.setitem(sys.modules, name, value)
    polls = 0

    def sleep(_: float) -> None:
        nonlocal polls
        polls += 1
        if polls == 5:
            raise SystemExit

    monkeypatch.setattr(
        module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic, time_ns=time.time_ns)
    )
    recorder = module.RankRecorder(tmp_path)
    recorder.steps.extend((1, 2))
    recorder.watch()
    recorder.at_exit()
    assert polls == 5


def hooks(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> tuple[Any, Callable[..., None], type]:
    """A recorder, its hook of optimizers and the class whose messages it notes."""

    class SendingGroup:
        def send(self, *_: object, **__: object) -> str:
            return "sent"

    registered: list[Callable[..., None]] = []
    optimizer = SimpleNamespace(register_optimizer_step_post_hook=registered.append)
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", optimizer)
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(ProcessGroup=SendingGroup))
    recorder = module.RankRecorder(folder)
    recorder._hook()
    recorder._hook()
    assert len(registered) == 1
    return recorder, registered[0], SendingGroup


class Optimizer:
    """One that steps."""


def test_messages_have_when_they_were_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Work:
        def wait(self, timeout: float = 0.0) -> float:
            return timeout

    class NamedGroup:
        group_name = "0"

        def send(self, *_: object) -> Work:
            return Work()

        recv = send

    registered: list[Callable[..., None]] = []
    optimizer = SimpleNamespace(register_optimizer_step_post_hook=registered.append)
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", optimizer)
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(ProcessGroup=NamedGroup, Work=Work))
    recorder = recorder_module().RankRecorder(tmp_path)
    recorder._hook()
    sent, asked = NamedGroup().send([], 1, 0), NamedGroup().recv([], 1, 0)
    assert (sent.wait(timeout=3.0), sent.wait(2.0), Work().wait(1.0)) == (3.0, 2.0, 1.0)
    [(*_, called_ns, _, began_ns, ended_ns)] = recorder.sent
    assert 0 < called_ns <= began_ns <= ended_ns
    assert [message[4:] for message in recorder.received] == [[0, 0]]
    del asked


def test_hooks_in_the_trainings_thread_never_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, stepped, group = hooks(recorder_module(), monkeypatch, tmp_path)
    stepped(object())  # there is no weak reference to it
    assert group().send([Raising()], 1, 0) == "sent"
    assert group().send(tensors=[], dst=1) == "sent"
    recorder.steps = None
    stepped(Optimizer())


def test_steps_of_the_first_optimizer_count_as_long_as_there_is_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, stepped, _ = hooks(recorder_module(), monkeypatch, tmp_path)
    first, second = Optimizer(), Optimizer()
    for optimizer in (first, second, first):
        stepped(optimizer)
    assert len(recorder.steps) == 2
    del first, optimizer
    stepped(second)
    assert len(recorder.steps) == 1, "what searched for a learning rate is another training"


def test_a_write_that_fails_is_tried_again_only_when_the_next_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = recorder_module()
    recorder = module.RankRecorder(tmp_path)
    recorder._about = {"rank": 0}
    recorder.steps.extend(range(12))
    tries: list[int] = []

    def write() -> None:
        tries.append(1)
        raise OSError("disk full")

    recorder.write = write
    with pytest.raises(OSError, match="disk full"):
        recorder._write_if_due()
    recorder._write_if_due()
    assert len(tries) == 1


def test_a_program_that_trains_nothing_keeps_the_record_of_one_that_did(tmp_path: Path) -> None:
    module = recorder_module()
    recorder = module.RankRecorder(tmp_path)
    recorder._about = {"rank": 0}
    path = tmp_path / module.job_folder(os.environ) / "rank-00000.json.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"of a training")
    recorder.write()
    assert path.read_bytes() == b"of a training"


def test_a_job_waits_for_its_last_record_no_longer_than_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = recorder_module()
    monkeypatch.setattr(module, "_AT_EXIT_S", 0.01)
    recorder = module.RankRecorder(tmp_path)
    recorder.steps.append(1)
    hanging = threading.Event()
    recorder.write = hanging.wait
    recorder.at_exit()
    hanging.set()
