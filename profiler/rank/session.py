"""A run as one rank goes through it: meet the others, check the machine, measure what the spec asks for."""

import gc
import os
import time
from collections.abc import Callable, Iterable, Sequence

import torch

from profiler.messages import Failed, Finished, Message, Started
from profiler.rank.background import background_flows
from profiler.rank.exchange import RankExchange
from profiler.rank.facts import gather_facts, let_nccl_choose
from profiler.rank.failures import StallWatch, explain, is_out_of_memory
from profiler.rank.host_load import LoadMeter, refuse_busy_hosts
from profiler.rank.nvml import open_nvml
from profiler.rank.peers import Peer, check_peers, meet_peers
from profiler.rank.sweep import check_sizes, sweep
from profiler.rank.telemetry import GpuSampler
from profiler.rank.training import Bench, measure_model
from profiler.spec import MeasurementSpec
from workloads.group import find_place, join, leave
from workloads.registry import find_workload


class RankSession:
    """A rank's part in a run.

    Attributes:
        peers: All ranks, once they have met.
        model: The name of the model that is measured now; empty if none is.
    """

    def __init__(self, spec: MeasurementSpec, report: Callable[[Message], None], watch: StallWatch) -> None:
        """Check the specification.

        Args:
            spec: What is measured.
            report: Sends the messages of rank 0.
            watch: Is told that this rank makes progress.

        Raises:
            InputError: The specification names a model or size that there is not.
        """
        check_sizes(spec.sweep_bytes)
        self.peers: Sequence[Peer] = ()
        self.model = ""
        self._workloads = [find_workload(name) for name in spec.models]
        self._spec = spec
        self._report = report
        self._watch = watch
        self._swept: set[int] = set()
        self._flags: tuple[str, ...] = ()

    def run(self) -> None:
        """Measure all of it.

        Raises:
            DallyError: The ranks do not come together or do not fit, or a machine is busy or lacks something.
        """
        start_s, spec = time.perf_counter(), self._spec
        self._group = group = join(spec.backend, spec.join_timeout_s)
        self._exchange = RankExchange(group.rank, group.size, self._watch.go_on)
        self.peers = meet_peers(group, self._exchange, find_place(os.environ).host)
        check_peers(self.peers)
        own = self.peers[group.rank]
        if not spec.allow_busy:
            refuse_busy_hosts(LoadMeter(own.machine, own.host, ()), self._exchange)
        with background_flows(spec.background_flows, self.peers, self._exchange) as children:
            on_gpu = group.device.type == "cuda"
            if on_gpu:
                let_nccl_choose(group.device)
            if group.rank == 0:
                self._tell(Started(gather_facts(group, self.peers, spec.gpu_type)))
            # Rank 0 reads the counters of the GPUs that ranks use on its machine.
            on_machine = [peer for peer in self.peers if peer.machine == own.machine]
            gpus = sorted({peer.gpu_uuid for peer in on_machine if peer.gpu_uuid}) if group.rank == 0 else []
            bench = Bench(
                spec,
                group,
                self._exchange,
                self._sweep,
                lambda: LoadMeter(own.machine, own.host, children),
                lambda: GpuSampler(open_nvml, gpus) if gpus else None,
            )
            self._watch.doing = "the all-reduces"
            self._sweep(spec.sweep_bytes)
            for workload in self._workloads:
                self.model = self._watch.doing = workload.name
                try:
                    self._tell(measure_model(workload, bench))
                except Exception as error:
                    # Alone, a rank goes on after a model that does not fit into memory. With others, it
                    # cannot: they wait for it in a collective. All end, and the driver launches them again
                    # without that model.
                    if group.size > 1 or not is_out_of_memory(error):
                        raise
                    self._tell(Failed(workload.name, explain(error, ())))
                gc.collect()  # DDP is part of reference cycles; two models at once may not fit
                if on_gpu:
                    torch.cuda.empty_cache()
            self.model, self._watch.doing = "", "the end"
        self._tell(Finished(time.perf_counter() - start_s))
        self._exchange.barrier()
        leave()

    def _sweep(self, sizes: Iterable[int]) -> tuple[str, ...]:
        """Time the all-reduces of those sizes that have not been; what is to be said of all so far."""
        new = set(sizes) - self._swept if self._group.size > 1 else set()
        self._flags += sweep(new, self._group.device, self._exchange, self._spec, self._tell)
        self._swept |= new
        return self._flags

    def _tell(self, message: Message) -> None:
        if self._group.rank == 0:
            self._report(message)
