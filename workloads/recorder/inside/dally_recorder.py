"""Writes what the ranks of a PyTorch job send to others.

PyTorch itself remembers each collective (Flight Recorder); this module asks it for them now and then, from a
thread of its own, and notes when the optimizer steps. It needs the standard library and whatever PyTorch
the job has. It must never end or slow a job: whatever fails in it ends the record, and nothing else.

A record is a gzip file of two lines: what the rank is, and Flight Recorder's own JSON. Each run of ranks has
a folder below that of its job, and jobs have theirs in one of their user's, as others may write beside it.
"""

from __future__ import annotations

import atexit
import gzip
import json
import os
import runpy
import socket
import statistics
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

_COLLECTIVES = 20_000
"""So many of the last collectives PyTorch remembers: several steps of a large job, some 10 MB."""

_FIRST_STEPS, _MOST_STEPS = 12, 4_000
_POLL_S = 0.1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 1_800.0
_STEPS_EVERY_S, _MEDIAN_OF = 30.0, 100
_AT_EXIT_S = 5.0
"""A job that ends waits so long for its last record, and no longer: its file system may hang."""

_FILES = runpy.run_path(str(Path(__file__).parents[3] / "dally" / "atomic_file.py"))
"""Dally's functions for files: what it needs is the standard library, and the job's Python may lack Dally."""

_RANK = "DALLY_LEARN_RANK"
"""Set in a rank, so that the programs it starts do not take themselves for ranks."""


class RankRecorder:
    """What one rank has noted.

    Attributes:
        steps: When the optimizer that stepped first has stepped, nanoseconds since 1970.
        sent: Messages from rank to rank that Flight Recorder does not see: group, bytes, time, peer, and when
            the rank began and ended to wait for it, 0 if it did not.
        received: The same where they are asked for.
        backward_passes: Those before each of these steps, one for each microbatch.
    """

    def __init__(self, folder: Path) -> None:
        """Record into this user's folder, or one below it for the job and one below that for the run."""
        self.steps: deque[int] = deque(maxlen=_MOST_STEPS)
        self.sent: deque[list[Any]] = deque(maxlen=_MOST_STEPS * 4)
        self.received: deque[list[Any]] = deque(maxlen=_MOST_STEPS * 4)
        self.backward_passes: deque[int] = deque(maxlen=_MOST_STEPS)
        self._passes, self._within_pass = 0, False
        self._folder = folder
        self._told = False
        self._process = os.getpid()
        self._about: dict[str, Any] = {}
        self._groups: dict[str, dict[str, Any]] = {}
        self._optimizer: weakref.ref[Any] | None = None
        self._lock = threading.Lock()
        self._hooked = False
        self._due_s, self._pause_s = 0.0, _FIRST_PAUSE_S
        self._steps_due_s = 0.0

    def watch(self) -> None:
        """Look for ever whether there is something to note or to write."""
        with suppress(BaseException):
            while True:
                time.sleep(_POLL_S)
                with suppress(Exception):  # while the job makes its groups, or takes them down
                    self._hook()
                    self._note_groups()
                with suppress(Exception):  # as the disk is full, which may pass
                    self._write_if_due()
                with suppress(Exception):
                    self._tell_steps_if_due()

    def at_exit(self) -> None:
        """Write for the last time, unless nothing is known or it takes too long."""
        with suppress(BaseException):
            if os.getpid() == self._process and (self.steps or self.sent):  # or it is a fork of the rank
                last = threading.Thread(target=self._write_at_last, daemon=True)
                last.start()
                last.join(_AT_EXIT_S)

    def _write_at_last(self) -> None:
        with suppress(BaseException):
            self.write()

    def _write_if_due(self) -> None:
        """Write after the first steps, and then ever more rarely."""
        if not self._about:
            return
        now_s = time.monotonic()
        self._due_s = self._due_s or now_s + self._pause_s
        if now_s > self._due_s or (self._pause_s == _FIRST_PAUSE_S and len(self.steps) >= _FIRST_STEPS):
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            self._due_s = now_s + self._pause_s
            self.write()

    def _tell_steps_if_due(self) -> None:
        """Tell Dally's controller from the first rank how long steps take, where it wants to know."""
        file = os.environ.get("DALLY_STEPS")
        now_s = time.monotonic()
        if not file or self._about.get("rank") != 0 or len(self.steps) <= _FIRST_STEPS:
            return
        if now_s > self._steps_due_s:
            self._steps_due_s = now_s + _STEPS_EVERY_S
            self.write_step_time(Path(file.replace("%j", _job_number())))

    def _hook(self) -> None:
        """Be told of each step of an optimizer and of what is sent to one rank; once both can be."""
        torch = sys.modules.get("torch")
        if self._hooked or getattr(getattr(torch, "__spec__", None), "_initializing", False):
            return
        optimizers = sys.modules.get("torch.optim.optimizer")
        register = getattr(optimizers, "register_optimizer_step_post_hook", None)
        compiler = getattr(torch, "compiler", None)
        group: Any = getattr(_distributed(), "ProcessGroup", None)
        if register is None or not hasattr(group, "send"):
            return
        self._hooked = True
        compiling = getattr(compiler, "is_compiling", bool)

        def stepped(optimizer: Any, *_: Any) -> None:
            if not compiling():  # what follows would cut the compiled optimizer in two
                self._stepped(optimizer)

        register(stepped)
        works: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        group.send = _noting(group.send, self.sent, works)
        if hasattr(group, "recv"):
            group.recv = _noting(group.recv, self.received, works)
        work: Any = getattr(_distributed(), "Work", None)
        if hasattr(work, "wait"):
            work.wait = _noting_waits(work.wait, works)
        autograd: Any = getattr(torch, "autograd", None)
        if hasattr(autograd, "backward"):
            autograd.backward = self._counting(autograd.backward, compiling)

    def _counting(self, backward: Any, compiling: Any) -> Any:
        """The function that every backward pass calls, and counts; one within another is part of it."""

        def counted(*arguments: Any, **named: Any) -> Any:
            if compiling() or self._within_pass:  # as what activation checkpointing computes anew
                return backward(*arguments, **named)
            self._within_pass = True
            try:
                return backward(*arguments, **named)
            finally:
                self._within_pass = False
                self._passes += 1

        return counted

    def _stepped(self, optimizer: Any) -> None:
        with suppress(Exception):
            first = self._optimizer and self._optimizer()
            if first is None:  # none has stepped, or what searched for a learning rate is gone
                self._optimizer = weakref.ref(optimizer)
                self.steps.clear()
                self.backward_passes.clear()
            if first in (None, optimizer):
                self.steps.append(time.time_ns())
                self.backward_passes.append(self._passes)
                self._passes = 0

    def _parameters(self) -> int:
        """Elements that the optimizer trains; 0 if that cannot be told."""
        with suppress(Exception):
            optimizer: Any = self._optimizer and self._optimizer()
            trained = [each for group in optimizer.param_groups for each in group["params"]]
            return sum(each.numel() for each in trained if each.requires_grad)
        return 0

    def _note_groups(self) -> None:
        """Remember the process groups while there are any: a job may take them down before it ends."""
        distributed = _distributed()
        ready = getattr(distributed, "is_initialized", None)
        if ready is None or not ready():
            return
        world = distributed.distributed_c10d._world
        if self._about and self._groups.keys() >= {*world.pg_names.values()}:
            return
        for group, name in list(world.pg_names.items()):
            ranks = world.pg_group_ranks.get(group) or ()  # groups of others stand there, too
            self._groups[name] = {
                "ranks": sorted(ranks),
                "description": str(getattr(group, "group_desc", "")),
            }
        rank = distributed.get_rank()
        self._about = {
            "schema": 3,
            "rank": rank,
            "world": distributed.get_world_size(),
            "host": socket.gethostname(),
            "backend": distributed.get_backend(),
            "torch": str(sys.modules["torch"].__version__),
            "begun_ns": self._about.get("begun_ns") or time.time_ns(),
        }
        os.environ[_RANK] = str(rank)

    def write_step_time(self, path: Path) -> None:
        """Write how long the last steps took, in the median: a small file."""
        times = list(self.steps)[-_MEDIAN_OF - 1 :]
        step_s = statistics.median(times[i] - times[i - 1] for i in range(1, len(times))) / 1e9
        said = {"job": _job_number(), "time": times[-1] / 1e9, "step_s": step_s}
        with self._own_folder(path.parent) as folder:
            _write(folder / path.name, json.dumps(said))

    def write(self) -> None:
        """Write what is known now in place of what was known before."""
        with self._lock:
            about = {
                **self._about,
                "groups": dict(self._groups),
                "steps_ns": list(self.steps),
                "sent": list(self.sent),
                "received": list(self.received),
                "parameters": self._parameters(),
                "backward_passes": statistics.median_low(self.backward_passes or [0]),
            }
            with self._own_folder(self._folder, *job_folder(os.environ).parts) as folder:
                path = folder / f"rank-{about['rank']:05}.json.gz"
                if not self.steps and path.exists():
                    return  # a program that trains nothing, after one that did
                trace, about["lacks"] = _remembered_collectives()
                about["written_ns"] = time.time_ns()
                _write(path, gzip.compress(json.dumps(about).encode() + b"\n" + trace, compresslevel=3))

    @contextmanager
    def _own_folder(self, users: Path, *names: str) -> Iterator[Path]:
        """A folder of this user's below the one that is to be his; told once if somebody else has it."""
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(_FILES["own_folder"](users.parent, users.name, *names))
            except PermissionError as error:
                if not self._told and self._about.get("rank") == 0:
                    self._told = True
                    print(f"dally: nothing is recorded: {error.filename}: {error.strerror}", file=sys.stderr)
                raise
            yield folder


def _write(path: Path, content: str | bytes) -> None:
    """Write a file in a folder in which others may lay links; the next one comes soon."""
    _FILES["write_atomically"](path, content, mode=None, durable=False)


def _noting(call: Any, messages: deque[list[Any]], works: weakref.WeakKeyDictionary[Any, list[Any]]) -> Any:
    """A method of process groups that notes the message before it is sent, or asked for."""

    def noted(group: Any, *arguments: Any, **named: Any) -> Any:
        message: list[Any] | None = None
        with suppress(Exception):  # called in another way than is known, it is passed on all the same
            tensors, peer, *_ = arguments
            size = sum(each.numel() * each.element_size() for each in tensors)
            message = [group.group_name, size, time.time_ns(), peer, 0, 0]
            messages.append(message)
        work = call(group, *arguments, **named)
        if message is not None:
            with suppress(Exception):
                works[work] = message
        return work

    return noted


def _noting_waits(wait: Any, works: weakref.WeakKeyDictionary[Any, list[Any]]) -> Any:
    """The method that waits for a message, or anything else, and notes of a message from when until when."""

    def noted(work: Any, *arguments: Any, **named: Any) -> Any:
        message: list[Any] | None = None
        if works:
            with suppress(Exception):
                message = works.pop(work, None)
        if message is None:
            return wait(work, *arguments, **named)
        message[4] = time.time_ns()
        try:
            return wait(work, *arguments, **named)
        finally:
            message[5] = time.time_ns()

    return noted


def _job_number() -> str:
    """As `dally queue` shows it, like 17 or 17_3."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def job_folder(variables: Any) -> Path:
    """Where the records of a run lie: in its job's folder, one for each run that its launcher tells apart.

    A run is told by how often Slurm restarted the job, its step, how often torchrun restarted the ranks, and
    the port where they meet.
    """
    told = {
        "SLURM_RESTART_COUNT": "0",
        "SLURM_STEP_ID": "batch",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "MASTER_PORT": "0",
    }
    return Path(
        variables.get("SLURM_JOB_ID", ""),
        "run-" + "-".join(variables.get(name) or default for name, default in told.items()),
    )


def _remembered_collectives() -> tuple[bytes, str]:
    """What Flight Recorder tells as JSON, and why it tells nothing; empty if it does.

    Since 2.8 PyTorch keeps what goes through NCCL apart from the rest: the longer trace has the training.
    """
    c10d = sys.modules.get("torch._C._distributed_c10d")
    traces, why = [], "it has no function that tells"
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        if hasattr(c10d, name):
            try:
                traces.append(getattr(c10d, name)())
            except Exception as error:
                why = repr(error)
    if not traces:
        return b"{}", f"this PyTorch has no Flight Recorder that can be read: {why}"
    trace = max(traces, key=len)
    return (trace if isinstance(trace, bytes) else trace.encode()), ""


def _distributed() -> Any:
    return sys.modules.get("torch.distributed")


def _remember_collectives() -> None:
    """Have PyTorch remember them; before 2.8 the variable had another name."""
    release = str(getattr(sys.modules.get("torch"), "__version__", "")).split(".")[:2]
    newer = not all(map(str.isdigit, release)) or tuple(map(int, release)) >= (2, 8)
    name = "TORCH_FR_BUFFER_SIZE" if newer else "TORCH_NCCL_TRACE_BUFFER_SIZE"
    os.environ.setdefault(name, str(_COLLECTIVES))


def start() -> None:
    """Record this process if it becomes a rank."""
    _remember_collectives()
    recorder = RankRecorder(Path(os.environ["DALLY_LEARN"]))
    threading.Thread(target=recorder.watch, name="dally-recorder", daemon=True).start()
    atexit.register(recorder.at_exit)
