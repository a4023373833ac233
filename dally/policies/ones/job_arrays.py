"""The jobs among which one step of the evolution shares out GPUs, as arrays."""

from dataclasses import dataclass

from dally.policies.common.arrays import Flags, Floats, Ints


@dataclass(frozen=True, slots=True)
class JobArrays:
    """What a step needs to know of each job, and the GPUs that the jobs share.

    Attributes:
        capacity: GPUs that they share.
        numbers: (jobs,) identify the jobs in candidates from step to step.
        least: (jobs,) fewest GPUs that each runs on.
        step: (jobs,) its GPUs are a multiple of this.
        limit: (jobs,) R, the GPUs that it may have as long as other jobs want some.
        most: (jobs,) max_size, the GPUs that it may have if they are left over.
        held: (jobs,) its GPUs now; 0 if it waits.
        resize_s: (jobs,) what it costs to go on on more or fewer, seconds.
        restart_s: (jobs,) what it costs to be stopped and go on later, seconds.
        new: (jobs,) whether it never ran.
        shrinks: (jobs,) whether it has smaller sizes than its most, so that other jobs need not stop it.
        old: (jobs,) whether two epochs of it are done, so that it may be stopped.
        left_s: (jobs,) Y (1 / rho - 1), the work that is guessed to be left, ideal seconds; 0 unless old.
        speeds: The jobs' rows of speeds on 0, 1, ... GPUs, one behind the other, as `Speeds.row`.
        offsets: (jobs,) where in it each row begins.
    """

    capacity: int
    numbers: Ints
    least: Ints
    step: Ints
    limit: Ints
    most: Ints
    held: Ints
    resize_s: Floats
    restart_s: Floats
    new: Flags
    shrinks: Flags
    old: Flags
    left_s: Floats
    speeds: Floats
    offsets: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def speed(self, counts: Ints) -> Floats:
        """(..., jobs) the speed of each job on so many GPUs, ideal seconds a second."""
        speeds: Floats = self.speeds[self.offsets + counts]
        return speeds
