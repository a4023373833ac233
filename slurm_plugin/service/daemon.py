"""The daemon: runs the controller cycle after cycle, whatever happens around it, and tells what it does."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from dally.cluster import load_cluster
from dally.cluster.summary import left_out_line
from dally.errors import DallyError, InputError
from dally.policies.registry import parse_policy
from dally.words import span
from slurm_plugin.client.backends import open_slurm
from slurm_plugin.client.forwarding import ForwardingSlurm
from slurm_plugin.client.orders import Order
from slurm_plugin.client.slurm import Look, Slurm, SlurmNode, SlurmUnavailableError
from slurm_plugin.controller.controller import JOURNAL_LOST, Controller, ControllerMode
from slurm_plugin.controller.journal import FencedError, Journal, JournalError
from slurm_plugin.controller.wall_clock import LASTS_S, WallClock
from slurm_plugin.munge import ProofError, read_realm
from slurm_plugin.service.controller_inputs import (
    ControllerInputs,
    cut,
    load_site,
    managed_gpus,
    stamp_of,
    with_registered,
)
from slurm_plugin.service.metrics import Metrics
from slurm_plugin.service.partition_lock import PartitionLocks
from slurm_plugin.service.report import CycleProblem, PublishedStatus, report
from slurm_plugin.service.server import Pages, PortError, Server
from slurm_plugin.service.signals import Signals

LONGEST_BACKOFF_S = 60.0
REST = 3.0
"""After a look at Slurm it rests at least this many times as long as the look took."""

SHORTEST_PAUSE_S = 0.1
_REALM_S = 2.0
SETTLE_S = 10.0
"""Slurm's nodes must differ from the cluster for so long before that counts: restarts pass by."""

_SAFE_STEPS = ("cycle", "observed", "decided")
"""Steps of a cycle at which nothing is begun and not ended."""


class _EndError(Exception):
    """The end was asked for in the middle of a cycle."""


class DaemonLog:
    """Tells events, each as one line of JSON; goes silent when nobody reads any more."""

    def __init__(self, out: TextIO) -> None:
        self._out: TextIO | None = out

    def __call__(self, t: float, event: str, **said: object) -> None:
        """Tell one event."""
        if self._out is not None:
            try:
                print(json.dumps({"t": round(t, 3), "event": event, **said}), file=self._out, flush=True)
            except OSError:
                self._out = None


class WatchedSlurm(ForwardingSlurm):
    """Slurm, of which the daemon keeps what nodes it showed, and counts what it was ordered.

    Attributes:
        shown: The nodes of the last answer.
    """

    def __init__(self, slurm: Slurm, metrics: Metrics) -> None:
        super().__init__(slurm)
        self._metrics = metrics
        self.shown: tuple[SlurmNode, ...] = ()

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes."""
        self.shown = super().nodes()
        return self.shown

    def look(self) -> Look:
        """Jobs, nodes and reservations."""
        look = self.slurm.look()
        self.shown = look.nodes
        return look

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        """Carry out orders."""
        answers = super().run(orders)
        self._metrics.orders(orders, answers)
        return answers


class Daemon:
    """The controller's process.

    Args:
        path: The configuration; None for the usual one.
        mode: How far it may go.
        signals: What ends it, makes it reload, and waits.
        open_backend: Gives access to Slurm by the backend's name.
        clock: Gives the time; None: the machine's.
        out: Where it tells its events.
        serve: Whether it serves its pages.

    Raises:
        InputError: The configuration, or something that it names, is wrong.
        BusyError: Another controller is at work.
        JournalError: The journal cannot be opened.
    """

    def __init__(
        self,
        path: Path | None,
        mode: ControllerMode,
        signals: Signals,
        open_backend: Callable[[str], Slurm] = open_slurm,
        clock: WallClock | None = None,
        out: TextIO | None = None,
        serve: bool = True,
    ) -> None:
        self._path, self._mode, self._signals = path, mode, signals
        self._open_backend = open_backend
        self.status = PublishedStatus("shadow" if mode.shadow else "drain" if mode.drain else "normal")
        self.metrics = Metrics(self.status)
        self._log = DaemonLog(out or sys.stdout)
        self._site = load_site(path)
        self._tell_jobs()
        self._slurm = WatchedSlurm(open_backend(self._site.config.backend), self.metrics)
        folder = Path(self._site.config.state_dir)  # a shadow's journal must not be taken for the real one's
        self._folder = folder / "shadow" if mode.shadow else folder
        self._journal = Journal(self._folder, self._said)
        self._clock = clock or WallClock(self._journal.load().now_s)
        self._locks = PartitionLocks(
            self._slurm,
            self._folder,
            lambda reason: self._tell("no_partition_lock", reason=reason),
            self._clock.steady,
        )
        self._told_jump_s = 0.0
        self._controller: Controller | None = None
        self._built_for: dict[str, int] = {}
        self._differs_since_s: float | None = None
        self._failures = 0
        self._listen = self._site.config.listen if serve else ""
        self.server: Server | None = None
        self.pages = Pages(self.status, self.metrics, self._folder)
        self._serve()

    def _tell_jobs(self) -> None:
        """What `dally-sbatch` may know of the policy."""
        policy = parse_policy(self._site.config.policy).policy
        self.status.plans_by, self.status.batching = policy.plans_by, policy.batching.value

    def _serve(self) -> None:
        """Serve the pages; if somebody else has the port, schedule without them and try again."""
        if not self._listen:
            return
        config = self._site.config
        try:
            if self.pages.realm is None:
                self.pages.realm = realm = read_realm(config, _REALM_S)
                if realm.has_munge and realm.uid != os.geteuid():
                    raise ProofError(
                        f"user is {config.user!r} in dally.toml, must be who runs the controller"
                    )
        except ProofError as error:
            self._tell_once("pages_unproven", error)
        try:
            if self.server is None:
                name = urlsplit(config.url).hostname or ""
                self.server = Server(self._listen, self.pages, (name,))
                if self.server.taken:
                    raise PortError(self.server.taken)
        except PortError as error:
            self._tell_once("pages_unavailable", error)

    def run(self, once: bool = False) -> None:
        """Cycle until the end is asked for, or once.

        Raises:
            FencedError: Another controller has taken over.
            OccupiedError: Another controller is at work on one of the partitions.
            SlurmUnavailableError, JournalError: With `once`: the cycle did not end well.
        """
        said = {"plans_by": self.status.plans_by} if self.status.plans_by else {}
        self._tell("controller_starts", mode=self.status.mode, policy=self._site.config.policy, **said)
        try:
            while not self._signals.end:
                try:
                    pause_s = self._cycle()
                except (SlurmUnavailableError, JournalError) as error:
                    if once:
                        raise
                    pause_s = self._failed(error)
                if once:
                    break
                self._signals.wait(pause_s)
        except _EndError:
            pass
        finally:
            self._tell("controller_ends")
            if self.server is not None:
                self.server.stop()
            with suppress(SlurmUnavailableError):
                self._locks.release()
            with suppress(FencedError, JournalError):
                if self._controller is not None:
                    self._controller.write_beliefs()
            self._journal.close()

    def _cycle(self) -> float:
        """One cycle; seconds until the next."""
        self._serve()
        controller, config = self._renewed(), self._site.config
        if not self._mode.shadow:
            first_nodes = {
                name: node.name
                for node in reversed(self._slurm.shown)
                for name in node.partitions
                if name in config.partitions
            }
            while wait_s := self._locks.hold(first_nodes, self._clock()):
                self._signals.wait(wait_s)
                if self._signals.end:
                    raise _EndError
        wakeup_s = controller.cycle()
        self.status.private = self._slurm.hides_jobs()
        self.status.segments = controller.reconciler.conditions.blocks.wants_segments
        pause_s = min(config.poll_s, wakeup_s - self._clock())
        pause_s = max(pause_s, REST * controller.stats.observe_s, SHORTEST_PAUSE_S)
        latest = report(controller, config.policy, config.partitions)
        self.status.publish(latest, pause_s)
        self.metrics.cycle(latest)
        if self._failures:
            self._tell("recovered", failures=self._failures)
            self._failures = 0
        return pause_s

    def _failed(self, error: DallyError) -> float:
        """Say what went wrong, give a sign of life if the journal takes it, and try again later."""
        unavailable = isinstance(error, SlurmUnavailableError)
        pause_s = min(LONGEST_BACKOFF_S, self._site.config.poll_s * 2.0 ** min(self._failures, 16))
        self._failures += 1
        event = "slurm_unavailable" if unavailable else "journal_error"
        (self.metrics.slurm_unavailable if unavailable else self.metrics.journal_errors).inc()
        self._tell_problem(event, error, again_in_s=pause_s)
        if unavailable:
            with suppress(JournalError):
                self._journal.commit(self._clock())
        return pause_s

    # What the controller is built from, and when it is built anew.

    def _renewed(self) -> Controller:
        """The controller, built anew if the configuration, the cluster's files or Slurm's nodes changed."""
        if self._signals.reload:
            self._signals.reload = False
            self._attempt("configuration", self._reload)
        if stamp_of(self._site.config.cluster) != self._site.stamp:
            self._attempt("cluster", self._read_cluster)
        if self._controller is None:
            self._slurm.nodes()
            return self._build(self._site)
        if moved_s := self._clock.follow():
            return self._build(self._site, moved_s)
        self._tell_jump()
        shown, now = managed_gpus(self._slurm.shown, self._site.config.partitions), self._clock()
        if shown in ({}, self._built_for):
            self._differs_since_s = None
            return self._controller
        if self._differs_since_s is None:
            self._differs_since_s = now
        if now - self._differs_since_s >= SETTLE_S:
            self._attempt("cluster", lambda: self._build(self._site))
        return self._controller

    def _tell_jump(self) -> None:
        """Tell once that the machine's clock has jumped."""
        jump_s, before_s, self._told_jump_s = self._clock.jump_s, self._told_jump_s, self._clock.jump_s
        if jump_s and not before_s:
            side = "ahead" if jump_s > 0 else "back"
            reason = f"the machine's clock jumped {side} by {span(abs(jump_s))}"
            reason += f"; Dally follows it if that lasts {span(LASTS_S)}"
            self._tell("clock_jumped", by_s=round(jump_s, 3), reason=reason)

    def _attempt(self, what: str, renew: Callable[[], object]) -> None:
        """Try something new; if it is wrong, keep what there is and say so."""
        try:
            renew()
        except (InputError, JournalError) as error:
            self._tell_problem(f"{what}_rejected", error)

    def _read_cluster(self) -> None:
        self._site = replace(self._site, stamp=stamp_of(self._site.config.cluster))
        topology = load_cluster(self._site.config.cluster, absent=True)
        if topology != self._site.topology:
            self._take(replace(self._site, topology=topology))

    def _reload(self) -> None:
        """Take up a changed configuration: all of it, or nothing if any of it is wrong."""
        site = load_site(self._path)
        old, new = self._site.config, site.config
        for key in ("state_dir", "listen"):
            if getattr(old, key) != getattr(new, key):
                raise InputError(f"{key} has changed: that needs a restart of the controller")
        backend = self._slurm.slurm if old.backend == new.backend else self._open_backend(new.backend)
        self._take(site)
        self._slurm.slurm = backend
        self.pages.realm = None
        self._serve()
        self._tell("reloaded", policy=new.policy)

    def _take(self, site: ControllerInputs) -> None:
        """From here on the controller is built from this site."""
        if self._controller is not None:
            self._build(site)
        self._site = site
        self._tell_jobs()

    def _build(self, site: ControllerInputs, moved_s: float | None = None) -> Controller:
        """A controller that goes on from the journal; `moved_s`: the clock was set by so much since."""
        before = self._controller
        if before is not None:
            before.write_beliefs()
        self._built_for = managed_gpus(self._slurm.shown, site.config.partitions)
        self._differs_since_s = None
        cluster = with_registered(site, self._slurm.shown)
        topology = cut(cluster, self._built_for)
        known = {machine.name: machine.gpus for machine in cluster.machines}
        self._tell(
            "cluster",
            nodes=len(topology.machines),
            gpus=topology.gpus,
            left_out=left_out_line(cluster),
            unknown=sorted(self._built_for.keys() - known),
            differ=sorted(name for name, gpus in self._built_for.items() if known.get(name, gpus) != gpus),
        )
        if site.profiles and (
            lines := site.profiles.stand_ins(product(site.profiles.models, topology.gpu_types))
        ):
            self._tell("profiles", stand_ins=lines)
        self._controller = Controller(
            self._slurm,
            site.config,
            topology,
            site.profiles,
            self._journal,
            self._mode,
            clock=self._clock,
            sleep=self._signals.wait,
            at=self._step,
            moved_s=moved_s,
        )
        if before is not None:
            self._controller.stats.decisions = before.stats.decisions
        return self._controller

    def _step(self, step: str) -> None:
        """The controller is at a step: where nothing is half done, it may end here."""
        if step in _SAFE_STEPS:
            self._signals.wait(0.0)
            if self._signals.end:
                raise _EndError

    def _tell_once(self, event: str, error: DallyError) -> None:
        if not any(problem.reason == str(error) for problem in self.status.problems):
            self._tell_problem(event, error)

    def _tell_problem(self, event: str, error: DallyError, **said: Any) -> None:
        self.status.add_problem(CycleProblem(round(self._clock(), 3), event, str(error)))
        self._tell(event, reason=str(error), **said)

    def _tell(self, event: str, **said: Any) -> None:
        self._said(self._clock(), event, **said)

    def _said(self, t: float, event: str, **said: object) -> None:
        self.metrics.event(event)
        if event == JOURNAL_LOST:
            self.status.add_problem(CycleProblem(round(t, 3), event, str(said["reason"])))
        self._log(t, event, **said)
