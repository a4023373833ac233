"""One launch as a rank goes through it: meet the others, look at the machine, measure what is ordered."""

import gc
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import torch

from dally.profiles.schema import Reduced
from profiler.findings import Failed, Finding, Finished, Started, Trained
from profiler.orders import MeasurementSpec
from profiler.rank.background import background_flows
from profiler.rank.exchange import RankExchange
from profiler.rank.facts import gather_facts
from profiler.rank.failures import explain, is_out_of_memory
from profiler.rank.gpus import let_nccl_choose
from profiler.rank.host_load import LoadMeter, refuse_busy_hosts
from profiler.rank.nvml import CounterError, Nvml, open_nvml
from profiler.rank.peers import Peer, check_peers, meet_peers
from profiler.rank.stall import StallWatch
from profiler.rank.sweep import check_sizes, sweep
from profiler.rank.telemetry import GpuSampler
from profiler.rank.training import Bench, measure_model
from workloads.group import find_place, join, leave
from workloads.registry import ModelRecipe, find_workload


class Launch:
    """A rank's part in a launch.

    Attributes:
        peers: All ranks, once they have met.
        model: The name of the model that is measured now; empty if none is.
    """

    def __init__(self, order: MeasurementSpec, report: Callable[[Finding], None], watch: StallWatch) -> None:
        """Check the order.

        Args:
            order: What is measured.
            report: Told by rank 0, in the order in which it is found.
            watch: Is told that this rank goes on.

        Raises:
            InputError: The order names a model or size that there is not.
        """
        check_sizes(order.sweep_bytes)
        self.peers: Sequence[Peer] = ()
        self.model = ""
        self._workloads = [find_workload(name) for name in order.models]
        self._order = order
        self._report = report
        self._watch = watch
        self._swept: set[int] = set()
        self._flags: tuple[str, ...] = ()

    def run(self) -> None:
        """Do all that is ordered.

        Raises:
            DallyError: The ranks do not come together or do not fit, or a machine is busy or lacks something.
        """
        start_s = time.perf_counter()
        self._group = join(self._order.backend, self._order.join_timeout_s)
        self._exchange = RankExchange(self._group.rank, self._group.size, self._watch.go_on)
        self.peers = meet_peers(self._group, self._exchange, find_place(os.environ).host)
        check_peers(self.peers)
        if not self._order.allow_busy:
            refuse_busy_hosts(self._make_meter(()), self._exchange)
        with background_flows(self._order.background_flows, self.peers, self._exchange) as children:
            self._measure(children)
        self._tell(Finished(time.perf_counter() - start_s))
        self._exchange.meet()
        leave()

    def _measure(self, children: Sequence[int]) -> None:
        on_gpu = self._group.device.type == "cuda"
        if on_gpu:
            let_nccl_choose(self._group.device)
        if self._group.rank == 0:
            nvml: Nvml | None = None
            with suppress(CounterError):
                nvml = open_nvml() if on_gpu else None
            self._tell(Started(gather_facts(self._group, self.peers, nvml, self._order.gpu_type)))
        bench = Bench(
            self._order,
            self._group,
            self._exchange,
            self._sweep,
            lambda: self._make_meter(children),
            self._make_sampler,
        )
        self._watch.doing = "the all-reduces"
        self._sweep(self._order.sweep_bytes)
        for workload in self._workloads:
            self.model = self._watch.doing = workload.name
            self._tell(self._measure_model(workload, bench))
            gc.collect()  # DDP is part of reference cycles; two models at once may not fit
            if self._group.device.type == "cuda":
                torch.cuda.empty_cache()
        self.model, self._watch.doing = "", "the end"

    def _measure_model(self, workload: ModelRecipe, bench: Bench) -> Trained | Failed:
        """One model; alone, a rank goes on after one that does not fit into memory.

        With others, it cannot: they wait for it in a collective. All end then, and whoever launched them
        launches them again without that model.
        """
        try:
            return measure_model(workload, bench)
        except Exception as error:
            if self._group.size > 1 or not is_out_of_memory(error):
                raise
            return Failed(workload.name, explain(error, ()))

    def _sweep(self, sizes: Iterable[int]) -> tuple[str, ...]:
        new = set(sizes) - self._swept if self._group.size > 1 else set()
        self._flags += sweep(new, self._group.device, self._exchange, self._order, self._tell)
        self._swept |= new
        return self._flags

    def _tell(self, finding: Finding | Reduced) -> None:
        if self._group.rank == 0:
            self._report(finding)

    def _make_meter(self, children: Sequence[int]) -> LoadMeter:
        own = self.peers[self._group.rank]
        return LoadMeter(own.machine, own.host, children)

    def _make_sampler(self) -> GpuSampler | None:
        """What reads the GPUs that ranks use on rank 0's machine; None on other ranks and without GPUs."""
        machine = self.peers[self._group.rank].machine
        uuids = {peer.gpu_uuid for peer in self.peers if peer.machine == machine and peer.gpu_uuid}
        return GpuSampler(open_nvml, sorted(uuids)) if uuids and self._group.rank == 0 else None
