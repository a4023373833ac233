"""One training step of a parallel plan: its time by phase, from sizes, data sheets and a few constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log2

from dally.errors import InputError
from dally.jobs.parallelism import Axis, Parallelism
from dally.profiles.parallel.gpu_specs import GpuSpec
from dally.profiles.parallel.rank_groups import Crossing, GroupSpread, RankGroup, spread_groups
from dally.profiles.parallel.rank_placement import Tier
from dally.profiles.parallel.step_constants import StepConstants
from dally.profiles.parallel.transformer import Transformer

_ACTIVATION_BYTES = 2

_OPTIMIZER_BYTES = 30
"""What Adam in mixed precision reads and writes of a parameter: gradient, master weight and two moments, and
all but the gradient again, with the weight in bf16."""

_WEIGHT_BYTES = 12
"""What a microbatch reads and writes of a weight: in bf16 forward and backward, and its fp32 gradient's
sum."""

_STREAMING = 0.8
"""Share of the memory's bandwidth that long streams reach."""

_NVLINK = 0.77
"""Share of NVLink's bandwidth that large collectives reach: nccl-tests give 230 of 300 GB/s on eight A100."""

_ROOF = 4
"""How sharply the longer of launching and computing decides; where both are as long, it is 1.19 times one."""

_MOST = 1_000_000_000

_INNER = (Axis.TENSOR, Axis.CONTEXT, Axis.EXPERT)
"""The axes that communicate in every layer."""


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """What a step trains on.

    Attributes:
        global_batch: Sequences of all ranks.
        micro_batch: Sequences that go through a rank at once.
        sequence: Tokens of a sequence.
    """

    global_batch: int
    micro_batch: int
    sequence: int

    def __post_init__(self) -> None:
        for name in ("global_batch", "micro_batch", "sequence"):
            if not 1 <= getattr(self, name) <= _MOST:
                raise InputError(f"batch: {name} is {getattr(self, name)}, must be 1 to {_MOST:,}")

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.global_batch * self.sequence

    def microbatches(self, plan: Parallelism) -> int:
        """Microbatches of a replica in a step.

        Raises:
            InputError: The batch does not go into the replicas' microbatches.
        """
        each = self.micro_batch * plan.dp
        if self.global_batch % each:
            raise InputError(
                f"batch: {self.global_batch} is no multiple of micro batch {self.micro_batch} x dp {plan.dp}"
            )
        return self.global_batch // each


@dataclass(frozen=True, slots=True)
class StepPhase:
    """A part of a step.

    Attributes:
        name: `compute`, an axis for its exposed communication, `bubble` or `optimizer`.
        seconds: All phases add up to the step's time.
    """

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TierTraffic:
    """What an axis sends out of machines in a step.

    Attributes:
        seconds: That its collectives which leave a machine take, hidden by compute or not.
        sent: Bytes out of one machine, one rack, and so on: out of the one that sends most.
    """

    seconds: float
    sent: tuple[float, ...]


@dataclass(frozen=True)
class TrainingStep:
    """One step of a plan on a placement.

    Attributes:
        model: What is trained.
        plan: How it is split.
        batch: On what.
        gpu: The GPU type.
        machines: GPUs of the plan on each machine or NVLink domain.
        precision: Of matrix products with weights: bf16, fp8 or fp4.
        fused_attention: Whether scores stay in the chip (FlashAttention).
        gradient_bytes: Bytes of a gradient on the wire.
        links: The links out of machines, out of racks, and so on as far as the plan spans several; none:
            those of the GPU type's data sheet.
    """

    model: Transformer
    plan: Parallelism
    batch: BatchSizes
    gpu: GpuSpec
    machines: tuple[int, ...]
    precision: str = "bf16"
    fused_attention: bool = True
    gradient_bytes: int = 2
    links: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        self.gpu.matrix_flops(self.precision)
        self.batch.microbatches(self.plan)
        parts = {"pp": "layers", "tp": "heads", "ep": "experts"}
        for axis, part in parts.items():
            ranks, count = getattr(self.plan, axis), getattr(self.model, part)
            if ranks > max(1, count):
                raise InputError(f"plan: {axis} is {ranks}, more than the model's {count} {part}")
        if sum(self.stage_layers) != self.model.layers:
            raise InputError(
                f"plan: stages have {sum(self.stage_layers)} layers, the model has {self.model.layers}"
            )

    @cached_property
    def spread(self) -> GroupSpread:
        """Which groups of ranks lie inside one machine, one rack, ..."""
        return spread_groups(self.plan, self.machines, [tier.domains for tier in self.tiers])

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The links that the plan crosses, those out of machines first."""
        share = self.gpu.network_bytes_per_s
        machines = tuple(range(len(self.machines)))
        return self.links or (Tier(machines, share * min(self.machines), share),)

    @cached_property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each stage; the last ones take what is left over."""
        if self.plan.stages:
            return self.plan.stages
        each, more = divmod(self.model.layers, self.plan.pp)
        return (*[each] * (self.plan.pp - more), *[each + 1] * more)

    @cached_property
    def tokens(self) -> float:
        """Tokens of a microbatch on one rank."""
        return self.batch.micro_batch * self.batch.sequence / self.plan.cp

    @cached_property
    def activation_bytes(self) -> float:
        """Bytes of a microbatch's activations between two layers, on one rank."""
        return _ACTIVATION_BYTES * self.tokens * self.model.hidden

    @cached_property
    def layer_parameters(self) -> float:
        """Weights of a layer that a rank holds without ZeRO."""
        return self.model.dense_parameters / self.plan.tp + self.model.expert_parameters / self.plan.ep

    @cached_property
    def rank_parameters(self) -> float:
        """Weights that a rank of the fullest stage holds without ZeRO."""
        return max(self.stage_layers) * self.layer_parameters + self.model.embedding_parameters / self.plan.tp

    def seconds(self, constants: StepConstants) -> float:
        """The time of the step."""
        return sum(phase.seconds for phase in self.phases(constants))

    def phases(self, constants: StepConstants) -> tuple[StepPhase, ...]:
        """The parts of the step; an axis of one rank has none.

        Stages run 1F1B: the slowest repeats for every microbatch, the others are waited for once, in `vp`
        chunks (Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, SC 2021,
        section 2.2).
        """
        plan, count = self.plan, self.batch.microbatches(self.plan)
        waits_s = {axis: self._layer_wait_s(axis, constants) for axis in _INNER}
        layer_s = self._layer_s(constants) + sum(waits_s.values())
        launch_s = constants.launch_s * plan.layer_passes / 3
        layer_s = (layer_s**_ROOF + launch_s**_ROOF) ** (1 / _ROOF)
        send_s = self._send_s(constants)
        stages = [layers * layer_s + send_s for layers in self.stage_layers]
        stages[-1] += self._head_s(constants)
        slowest = max(range(plan.pp), key=stages.__getitem__)
        axes_s = {axis: count * self.stage_layers[slowest] * wait_s for axis, wait_s in waits_s.items()}
        compute_s = count * (stages[slowest] - send_s) - sum(axes_s.values())
        axes_s[Axis.PIPELINE] = count * send_s
        axes_s[Axis.DATA] = self._data_s(constants, compute_s)
        return (
            StepPhase("compute", compute_s),
            *(StepPhase(axis.value, axes_s[axis]) for axis in Axis if axes_s[axis]),
            StepPhase("bubble", (sum(stages) - stages[slowest]) / plan.vp),
            StepPhase("optimizer", self._optimizer_s(constants)),
        )

    def _layer_s(self, constants: StepConstants) -> float:
        """Seconds that one layer of one microbatch computes, forward and backward.

        Matrix products take 2 flops a weight and token; scores 4 for a token, a token of its sequence and a
        unit of width (Chowdhery et al., PaLM, 2022, appendix B). All else is bound by memory: bytes of
        activations as counted by Korthikanti et al., Reducing Activation Recomputation in Large Transformer
        Models, 2022, section 4; an expert's tokens are copied there and back.
        """
        model, tp, tokens = self.model, self.plan.tp, self.tokens
        dense = 2 * tokens * model.dense_parameters / tp * (1 + constants.narrow * tp / model.hidden)
        experts = 2 * tokens * model.routed_parameters * (1 + constants.narrow / model.ffn)
        scores = 4 * tokens * self.batch.sequence * model.attention_width / tp
        moved = tokens * (10 * model.hidden + (8 * model.hidden + 4 * model.split_ffn) / tp)
        if model.experts:
            moved += 8 * tokens * model.top_k * model.hidden
        if not self.fused_attention:
            moved += 5 * tokens * self.batch.sequence * model.heads / tp
        score_share = constants.attention if self.fused_attention else constants.matmul
        forward_s = (dense + experts) / (self.gpu.matrix_flops(self.precision) * constants.matmul)
        forward_s += scores / (self.gpu.flops * score_share)
        forward_s += moved / (self.gpu.memory_bytes_per_s * constants.memory)
        weights_s = _WEIGHT_BYTES * self.layer_parameters / (self.gpu.memory_bytes_per_s * _STREAMING)
        return forward_s * self.plan.layer_passes + weights_s

    def _head_s(self, constants: StepConstants) -> float:
        """Seconds of the output layer and the loss for one microbatch, forward and backward."""
        model, tp = self.model, self.plan.tp
        flops = 6 * self.tokens * model.embedding_parameters / tp * (1 + constants.narrow * tp / model.hidden)
        moved = 24 * self.tokens * model.vocabulary / tp
        memory = self.gpu.memory_bytes_per_s * constants.memory
        return flops / (self.gpu.flops * constants.matmul) + moved / memory

    def _optimizer_s(self, constants: StepConstants) -> float:
        """Seconds of Adam, on a rank's weights or on its shard of them."""
        shards = self.plan.dp * self.plan.cp if self.plan.zero else 1
        moved = _OPTIMIZER_BYTES * self.rank_parameters / shards
        return moved / (self.gpu.memory_bytes_per_s * constants.memory)

    def _layer_wait_s(self, axis: Axis, constants: StepConstants) -> float:
        """Seconds that one layer of one microbatch waits for its own collectives, forward and backward.

        Of tp there are two all-reduces in each pass over the layer (Shoeybi et al., Megatron-LM, 2019). Of cp
        keys and values go round in each pass, with their gradients in backward (Liu et al., Ring Attention,
        2023), and attention hides a part. Of ep there are two all-to-alls in each pass, there and back.
        """
        group = self.spread.groups.get(axis)
        if group is None or (axis is Axis.EXPERT and not self.model.experts):
            return 0.0
        passes = self.plan.layer_passes - 1
        if axis is Axis.TENSOR:
            return 2 * passes * self._collective_s(group, 2 * self.activation_bytes, constants)
        if axis is Axis.EXPERT:
            return 2 * passes * self._all_to_all_s(group, constants)
        return constants.exposed * self._collective_s(group, self._context_bytes(group), constants)

    def _send_s(self, constants: StepConstants) -> float:
        """Seconds in which a stage passes a microbatch on, and its gradient back.

        Each tensor rank sends its part. With several chunks a stage computes the one while it sends another.
        """
        group = self.spread.groups.get(Axis.PIPELINE)
        if group is None:
            return 0.0
        send_s = self._one_send_s(group, constants)
        return send_s if self.plan.vp == 1 else send_s * self.plan.vp * constants.exposed

    def _one_send_s(self, group: RankGroup, constants: StepConstants) -> float:
        """Seconds in which one chunk of a stage passes a microbatch on, and its gradient back."""
        rate = self._domain_rate
        if group.crosses:
            # A rank has its own part of its machine's links; those of racks belong to whoever sends.
            rates = [self.tiers[0].rank_bytes_per_s]
            above = zip(self.tiers[1:], group.above, strict=True)
            rates += [tier.bytes_per_s / at.sharers for tier, at in above if at.sharers]
            rate = min(rates) * constants.network
        return 2 * (self.activation_bytes / self.plan.tp / rate + constants.latency_s)

    def _data_s(self, constants: StepConstants, compute_s: float) -> float:
        """Exposed seconds of gradients and of sharded weights.

        Stages 0 to 2 reduce gradients, and gather weights or reduced gradients, once a step. Stage 3 gathers
        for forward and for backward and reduces, for every microbatch (Rajbhandari et al., ZeRO, SC 2020,
        section 7). Compute hides all but a share, as long as it takes; stages 2 and 3 go layer by layer
        around a ring.
        """
        group = self.spread.groups.get(Axis.DATA)
        if group is None:
            return 0.0
        times = self._data_times
        spent_s = times * self._collective_s(group, self._data_bytes(group), constants)
        rings = {2: 2, 3: 3}.get(self.plan.zero, 0) * times * max(self.stage_layers)
        hops_s = rings * (group.size - 1) * constants.hop_s
        return max(constants.exposed * spent_s, spent_s - compute_s) + hops_s

    @property
    def _data_times(self) -> int:
        """How often a step reduces and gathers."""
        return self.batch.microbatches(self.plan) if self.plan.zero == 3 else 1

    def _data_bytes(self, group: RankGroup) -> float:
        """Bytes that are reduced and gathered each time."""
        zero = self.plan.zero
        each = self.gradient_bytes + (self.gradient_bytes if zero == 0 else _ACTIVATION_BYTES)
        return (each + (_ACTIVATION_BYTES if zero == 3 else 0)) * self._reduced_parameters(group)

    def _reduced_parameters(self, group: RankGroup) -> float:
        """Weights of a rank that its data-parallel group shares, those of experts by their fewer replicas."""
        experts = max(self.stage_layers) * self.model.expert_parameters / self.plan.ep
        replicas = self.plan.dp * self.plan.cp * self.plan.tp / self.plan.ep
        shared = (1 - 1 / replicas) / (1 - 1 / group.size)
        return self.rank_parameters - experts * (1 - shared)

    @property
    def _domain_rate(self) -> float:
        """Bytes per second of a GPU inside its NVLink domain."""
        return self.gpu.domain_bytes_per_s * _NVLINK

    def _collective_s(self, group: RankGroup, sent: float, constants: StepConstants) -> float:
        """Seconds of collectives that send (n-1)/n of so many bytes.

        Rings are hierarchical: (m-1)/m of the bytes leave each of m machines, over the links of all its GPUs,
        which its groups share (BlueConnect, Cho et al., MLSys 2019), and so on for racks.
        """
        seconds = (group.inside - 1) / group.inside * sent / self._domain_rate
        for tier, at in zip(self.tiers, group.crossings, strict=True):
            if at.sharers:
                rate = tier.bytes_per_s * constants.network / at.sharers
                seconds = max(seconds, (at.domains - 1) / at.domains * sent / rate)
        return seconds + constants.latency_s * log2(group.size)

    def _all_to_all_s(self, group: RankGroup, constants: StepConstants) -> float:
        """Seconds in which tokens reach their experts, or come back.

        A token goes to its experts' ranks, over the network once to each machine that has one; NVLink carries
        it on (DeepSeek-V3 Technical Report, 2024, section 3.2.2).
        """
        choices = self.model.top_k
        seconds = (group.size - 1) / group.size * choices * self.activation_bytes / self._domain_rate
        for number, (tier, at) in enumerate(zip(self.tiers, group.crossings, strict=True)):
            if at.sharers:
                rank = tier.rank_bytes_per_s if number == 0 else tier.bytes_per_s / (at.sharers * at.inside)
                seconds = max(seconds, self._copied_bytes(group, at) / (rank * constants.network))
        return seconds + constants.latency_s * log2(group.size)

    def _copied_bytes(self, group: RankGroup, at: Crossing) -> float:
        """Bytes of a rank's tokens that leave a domain of the level for the other machines of its group."""
        others = group.machines - group.machines / at.domains
        return others * (1 - (1 - 1 / group.machines) ** self.model.top_k) * self.activation_bytes

    def traffic(self, constants: StepConstants) -> Mapping[Axis, TierTraffic]:
        """What each axis sends out of machines in a step; axes that do not are left out."""
        count = self.batch.microbatches(self.plan)
        layers = count * max(self.stage_layers)
        passes = self.plan.layer_passes - 1
        found: dict[Axis, TierTraffic] = {}
        for axis, group in self.spread.groups.items():
            if not group.crosses or (axis is Axis.EXPERT and not self.model.experts):
                continue
            if axis is Axis.EXPERT:
                times, each_s = 2 * passes * layers, self._all_to_all_s(group, constants)
                sent = [self._copied_bytes(group, at) * at.sharers * at.inside for at in group.crossings]
            elif axis is Axis.PIPELINE:
                times, each_s = count * self.plan.vp, self._one_send_s(group, constants)
                # A domain between two others passes activations on and gradients back.
                part = self.activation_bytes / self.plan.tp
                sent = [part * at.sharers * min(2, at.domains - 1) for at in group.crossings]
            else:
                times, ring = {
                    Axis.TENSOR: (2 * passes * layers, 2 * self.activation_bytes),
                    Axis.CONTEXT: (layers, self._context_bytes(group)),
                    Axis.DATA: (self._data_times, self._data_bytes(group)),
                }[axis]
                each_s = self._collective_s(group, ring, constants)
                sent = [ring * at.sharers * (at.domains - 1) / at.domains for at in group.crossings]
            found[axis] = TierTraffic(times * each_s, tuple(times * each for each in sent))
        return found

    def _context_bytes(self, group: RankGroup) -> float:
        """Bytes of keys, values and their gradients that go round for a layer of a microbatch."""
        keys = _ACTIVATION_BYTES * self.tokens * 2 * self.model.kv_width / self.plan.tp
        return self.plan.layer_passes * keys * group.size
