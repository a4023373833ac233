"""Rules by which sites set segments: so many machines in each, by the GPUs of the job."""

from dataclasses import dataclass

from dally.words import plural


@dataclass(frozen=True, slots=True)
class SegmentRule:
    """A rule that looks at the size of a job alone.

    Attributes:
        most: Pairs of (GPUs, machines), the largest first: from so many GPUs on, a segment has at most so
            many machines. Smaller jobs have segments of one machine. Empty: no job has segments.
    """

    most: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        """Like `128:16,32:4`, or `none`."""
        return ",".join(f"{gpus}:{machines}" for gpus, machines in self.most) or "none"

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            ", ".join(
                f"{plural(machines, 'machine')} from {plural(gpus, 'GPU')} on"
                if gpus
                else f"up to {plural(machines, 'machine')}"
                for gpus, machines in self.most
            )
            or "no segments"
        )

    def segment(self, gpus: int, machine_gpus: int, block: int | None = None) -> int | None:
        """The machines of a job's segments; None for jobs of one machine, and where there is no rule.

        Where the rule's number does not divide the machines of the job, it is the most below that does.

        Args:
            gpus: The job's.
            machine_gpus: That it has on each machine, a divisor.
            block: The most machines that a segment may have; None: no such bound.
        """
        machines = gpus // machine_gpus
        if machines < 2 or not self.most:
            return None
        most = next((most for least, most in self.most if gpus >= least), 1)
        bound = most if block is None else min(most, block)
        return max(size for size in range(1, bound + 1) if machines % size == 0)


NO_SEGMENTS = SegmentRule(())

STATIC_SEGMENTS = SegmentRule(((128, 16), (32, 4)))
"""What NVIDIA recommends for GB200 NVL72: 16 machines for 128 GPUs and more, 4 for 32 and more (technical
blog, Unlock Exascale Performance on NVIDIA GB200 NVL72 with Slurm Topology-Aware Job Scheduling)."""
