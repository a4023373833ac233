"""Runs in every Python of a recorded job, and writes what its rank sends to others.

PyTorch itself remembers each collective (Flight Recorder); this module asks it for them now and then, from a
thread of its own, and notes when the optimizer steps. It needs the standard library and whatever PyTorch the
job has. It must never end or slow a job: whatever fails in it ends the record, and nothing else.

A record is a gzip file of two lines: what the rank is, and Flight Recorder's own JSON.
"""

import atexit
import gzip
import importlib.metadata
import importlib.util
import json
import os
import socket
import statistics
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

_FOLDER = os.environ.get("DALLY_LEARN", "")
_STEP_FILE = os.environ.get("DALLY_STEPS", "")
_COLLECTIVES = 20_000
"""So many of the last collectives PyTorch remembers: several steps of a large job, some 10 MB."""

_FIRST_STEPS, _MOST_STEPS = 12, 4_000
_POLL_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 1_800.0
_STEPS_EVERY_S, _MEDIAN_OF = 30.0, 100
_AT_EXIT_S = 5.0
"""A job that ends waits so long for its last record, and no longer: its file system may hang."""


def _next_sitecustomize() -> None:
    """Run the site's own module of this name, which this one hides."""
    here = Path(__file__).resolve().parent
    for entry in sys.path:
        if entry and Path(entry).resolve() != here:
            found = Path(entry) / "sitecustomize.py"
            if found.is_file():
                spec = importlib.util.spec_from_file_location("_hidden_sitecustomize", found)
                if spec and spec.loader:
                    spec.loader.exec_module(importlib.util.module_from_spec(spec))
                return


class _Recorder:
    """What one rank has noted.

    Attributes:
        steps: When the optimizer that stepped first has stepped, nanoseconds since 1970.
        sent: Messages from rank to rank that Flight Recorder does not see: (group, bytes, time, peer).
    """

    def __init__(self) -> None:
        self.steps: deque[int] = deque(maxlen=_MOST_STEPS)
        self.sent: deque[tuple[str, int, int, int]] = deque(maxlen=_MOST_STEPS * 4)
        self._about: dict[str, Any] = {}
        self._groups: dict[str, dict[str, Any]] = {}
        self._optimizer: int | None = None
        self._lock = threading.Lock()
        self._hooked = False

    def watch(self) -> None:
        """Wait until the process has a process group, then write records, ever more rarely."""
        due_s, pause_s, steps_due_s = 0.0, _FIRST_PAUSE_S, 0.0
        while True:
            time.sleep(_POLL_S)
            self._hook()
            self._note_groups()
            if not self._about:
                continue
            now_s = time.monotonic()
            if self._about["rank"] == 0 and now_s > steps_due_s and len(self.steps) > _FIRST_STEPS:
                steps_due_s = now_s + _STEPS_EVERY_S
                with suppress(Exception):
                    self.write_step_time()
            due_s = due_s or now_s + pause_s
            if now_s > due_s or (pause_s == _FIRST_PAUSE_S and len(self.steps) >= _FIRST_STEPS):
                self.write()
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                due_s = time.monotonic() + pause_s

    def _hook(self) -> None:
        """Be told of each step of an optimizer and of what is sent to one rank; once both can be."""
        optimizers = sys.modules.get("torch.optim.optimizer")
        register = getattr(optimizers, "register_optimizer_step_post_hook", None)
        group: Any = getattr(_distributed(), "ProcessGroup", None)
        if self._hooked or register is None or not hasattr(group, "send"):
            return
        self._hooked = True
        register(self._stepped)
        send = group.send

        def noted(group: Any, *arguments: Any, **named: Any) -> Any:
            with suppress(Exception):  # called in another way than is known, it is passed on all the same
                tensors, peer, *_ = arguments
                size = sum(each.numel() * each.element_size() for each in tensors)
                self.sent.append((group.group_name, size, time.time_ns(), peer))
            return send(group, *arguments, **named)

        group.send = noted

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if id(optimizer) == self._optimizer:
            self.steps.append(time.time_ns())

    def _note_groups(self) -> None:
        """Remember the process groups while there are any: a job may take them down before it ends."""
        distributed = _distributed()
        ready = getattr(distributed, "is_initialized", None)
        if ready is None or not ready():
            return
        world = distributed.distributed_c10d._world
        for group, name in list(world.pg_names.items()):
            ranks, description = world.pg_group_ranks.get(group), getattr(group, "group_desc", "")
            if ranks:  # groups of others stand there, too
                self._groups[name] = {"ranks": sorted(ranks), "description": description}
        self._about = {
            "schema": 1,
            "rank": distributed.get_rank(),
            "world": distributed.get_world_size(),
            "host": socket.gethostname(),
            "backend": distributed.get_backend(),
            "torch": sys.modules["torch"].__version__,
        }

    def write_step_time(self) -> None:
        """Tell Dally's controller how long the last steps took, in the median: a small file."""
        if not _STEP_FILE:
            return
        times = list(self.steps)[-_MEDIAN_OF - 1 :]
        step_s = statistics.median(times[i] - times[i - 1] for i in range(1, len(times))) / 1e9
        path = Path(_STEP_FILE.replace("%j", _job_number()))
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            beside.write_text(json.dumps({"time": times[-1] / 1e9, "step_s": step_s}))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    def write(self) -> None:
        """Write what is known now in place of what was known before."""
        with self._lock:
            c10d = sys.modules["torch._C._distributed_c10d"]
            dump = getattr(c10d, "_dump_fr_trace_json", None) or c10d._dump_nccl_trace_json
            trace = dump()
            about = {
                **self._about,
                "groups": self._groups,
                "steps_ns": list(self.steps),
                "sent": list(self.sent),
            }
            folder = Path(_FOLDER, os.environ.get("SLURM_JOB_ID", ""))
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"rank-{about['rank']:05}.json.gz"
            beside = path.with_suffix(f".{os.getpid()}.part")
            try:
                with gzip.open(beside, "wb", compresslevel=3) as file:
                    file.write(json.dumps(about).encode() + b"\n")
                    file.write(trace if isinstance(trace, bytes) else trace.encode())
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)


def _job_number() -> str:
    """As `dally queue` shows it, like 17 or 17_3."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def _distributed() -> Any:
    return sys.modules.get("torch.distributed")


def _remember_collectives() -> None:
    """Have PyTorch remember them; before 2.8 the variable had another name."""
    with suppress(importlib.metadata.PackageNotFoundError):
        release = tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])
        name = "TORCH_FR_BUFFER_SIZE" if release >= (2, 8) else "TORCH_NCCL_TRACE_BUFFER_SIZE"
        os.environ.setdefault(name, str(_COLLECTIVES))


def _start() -> None:
    _remember_collectives()
    recorder = _Recorder()

    def watch() -> None:
        with suppress(BaseException):
            recorder.watch()

    def last_write() -> None:
        with suppress(BaseException):
            recorder.write()

    def at_exit() -> None:
        if recorder.steps or recorder.sent:
            last = threading.Thread(target=last_write, daemon=True)
            last.start()
            last.join(_AT_EXIT_S)

    threading.Thread(target=watch, name="dally-recorder", daemon=True).start()
    atexit.register(at_exit)


with suppress(BaseException):
    if _FOLDER and ("RANK" in os.environ or "SLURM_PROCID" in os.environ):
        _start()
_next_sitecustomize()
