"""What measured steps tell of a GPU type and its software."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepConstants:
    """What a step's time depends on beside sizes and data sheets; the defaults are the usual values.

    Attributes:
        matmul: Share of the data sheet's flops that large matrix products reach.
        narrow: Width of a rank's slice of a matrix at which its products take twice as long.
        attention: The same share for attention that keeps its scores in the chip. Scores above the diagonal
            count as work, so skipping them makes it larger.
        memory: Share of the memory's bandwidth that all else of a layer reaches.
        launch_s: Seconds that a layer takes at least for a microbatch, forward and backward: the CPU launches
            its kernels.
        latency_s: Seconds of a collective beside its bytes, for each doubling of its ranks.
        hop_s: Seconds of one step of a ring that gathers or scatters a layer's sharded weights.
        network: Share of the network's bandwidth; more than 1 where compute hides what crosses it.
        exposed: Share of the communication of data, context and interleaved stages that nothing hides.
    """

    matmul: float = 0.7
    narrow: float = 80.0
    attention: float = 0.3
    memory: float = 0.35
    launch_s: float = 1e-3
    latency_s: float = 3e-5
    hop_s: float = 3e-6
    network: float = 0.7
    exposed: float = 0.5


USUAL = StepConstants()
