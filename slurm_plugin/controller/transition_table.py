"""What can happen to a managed job in each phase, and the phase that follows: all of it, on one page."""

from collections.abc import Mapping
from enum import StrEnum

from dally.markdown import table
from slurm_plugin.controller.managed_job import JobPhase

INELIGIBLE, PENDING, STARTING = JobPhase.INELIGIBLE, JobPhase.PENDING, JobPhase.STARTING
RUNNING, STOPPING, RELEASED = JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.RELEASED


class JobEvent(StrEnum):
    """What can happen; each is a method of `transitions.JobTransitions`, the only writer."""

    TAKE_ON = "take_on"
    SET_INELIGIBLE = "set_ineligible"
    END_HOLD = "end_hold"
    RETRY = "retry"
    QUEUE = "queue"
    MEET_RUNNING = "meet_running"
    EXPLAIN_WAIT = "explain_wait"
    BEGIN_START = "begin_start"
    START_INTERRUPTED = "start_interrupted"
    TRY_ELSEWHERE = "try_elsewhere"
    BACK_OFF = "back_off"
    START = "start"
    PLAN_SAVE = "plan_save"
    REPORT_PROGRESS = "report_progress"
    RESIZE = "resize"
    REQUEST_CHECKPOINT = "request_checkpoint"
    SIGNAL = "signal"
    CARRY_ON = "carry_on"
    LOSE_GPUS = "lose_gpus"
    RELEASE = "release"
    HOLD_AGAIN = "hold_again"
    END = "end"


Before = JobPhase | None
"""A phase; None: the job is not known."""

TRANSITIONS: Mapping[tuple[Before, JobEvent], tuple[Before, str]] = {
    (None, JobEvent.TAKE_ON): (INELIGIBLE, "Slurm shows a job that asks for Dally."),
    #
    (INELIGIBLE, JobEvent.SET_INELIGIBLE): (INELIGIBLE, "Something else keeps it from starting now."),
    (INELIGIBLE, JobEvent.END_HOLD): (INELIGIBLE, "Who held it has released it; Dally holds it again."),
    (INELIGIBLE, JobEvent.RETRY): (INELIGIBLE, "Its back-off ends early: what was in its way has left."),
    (INELIGIBLE, JobEvent.QUEUE): (PENDING, "Nothing but GPUs is missing."),
    (INELIGIBLE, JobEvent.MEET_RUNNING): (PENDING, "Slurm runs it; the policy is told of it first."),
    (INELIGIBLE, JobEvent.RELEASE): (RELEASED, "Dally cannot place it, or somebody released it."),
    (INELIGIBLE, JobEvent.END): (None, "It was cancelled."),
    #
    (PENDING, JobEvent.SET_INELIGIBLE): (
        INELIGIBLE,
        "Something other than GPUs keeps it from starting, or what was decided for it would be in vain.",
    ),
    (PENDING, JobEvent.EXPLAIN_WAIT): (
        PENDING,
        "The policy says why it waits, and until when for closer GPUs.",
    ),
    (PENDING, JobEvent.BEGIN_START): (STARTING, "The policy starts it: it is released onto its nodes."),
    (PENDING, JobEvent.START): (RUNNING, "Slurm runs it, though nobody has just released it."),
    (PENDING, JobEvent.RELEASE): (
        RELEASED,
        "Dally cannot place it, somebody released it, or it runs on GPUs that are not Dally's to give.",
    ),
    (PENDING, JobEvent.END): (None, "It was cancelled."),
    #
    (STARTING, JobEvent.START): (RUNNING, "Slurm shows it running."),
    (STARTING, JobEvent.START_INTERRUPTED): (
        PENDING,
        "Slurm shows it held: the order was never given, slurmctld forgot it, or somebody requeued it held.",
    ),
    (STARTING, JobEvent.TRY_ELSEWHERE): (
        PENDING,
        "Slurm did not start it there; it is held and tries other nodes.",
    ),
    (STARTING, JobEvent.BACK_OFF): (
        INELIGIBLE,
        "Slurm did not start it; it is held and left out for a while.",
    ),
    (STARTING, JobEvent.RELEASE): (
        RELEASED,
        "It asks for more time than its partition allows, or runs on GPUs that are not Dally's to give.",
    ),
    (STARTING, JobEvent.END): (None, "It was cancelled before it ran."),
    #
    (RUNNING, JobEvent.PLAN_SAVE): (
        RUNNING,
        "It is known anew when its time limit calls for its checkpoint.",
    ),
    (RUNNING, JobEvent.REPORT_PROGRESS): (RUNNING, "It says how far it is."),
    (RUNNING, JobEvent.RESIZE): (PENDING, "It has other GPUs, on which it starts at once."),
    (RUNNING, JobEvent.REQUEST_CHECKPOINT): (
        STOPPING,
        "Others need its GPUs, it goes on elsewhere, or its time limit comes too early.",
    ),
    (RUNNING, JobEvent.LOSE_GPUS): (
        PENDING,
        "It was requeued by somebody else, or a node or slurmctld failed.",
    ),
    (RUNNING, JobEvent.RELEASE): (
        RELEASED,
        "The cluster's files changed, and its GPUs are not Dally's any more.",
    ),
    (RUNNING, JobEvent.END): (None, "It ended."),
    #
    (STOPPING, JobEvent.SIGNAL): (STOPPING, "It is sent its checkpoint signal, and its grace begins."),
    (STOPPING, JobEvent.REPORT_PROGRESS): (STOPPING, "It says how far it is."),
    (STOPPING, JobEvent.CARRY_ON): (RUNNING, "Slurm will not requeue it: it runs on and is not asked again."),
    (STOPPING, JobEvent.LOSE_GPUS): (PENDING, "It was requeued, its checkpoint written or its grace over."),
    (STOPPING, JobEvent.RELEASE): (
        RELEASED,
        "The cluster's files changed, and its GPUs are not Dally's any more.",
    ),
    (STOPPING, JobEvent.END): (None, "It ended before it was requeued."),
    #
    (RELEASED, JobEvent.HOLD_AGAIN): (INELIGIBLE, "Its user holds it: it is Dally's again."),
    (RELEASED, JobEvent.END): (None, "It ended."),
}


def next_phase(phase: Before, event: JobEvent) -> Before:
    """The phase after an event.

    Raises:
        RuntimeError: The event cannot happen in this phase: whoever calls it is wrong.
    """
    if (phase, event) not in TRANSITIONS:
        raise RuntimeError(f"{event} cannot happen to a job that is {phase or 'not known'}")
    return TRANSITIONS[phase, event][0]


def as_markdown() -> str:
    """The table for people, in the words that they see as states."""
    rows = [
        [before or "-", after or "gone", f"`{event}`", why]
        for (before, event), (after, why) in TRANSITIONS.items()
    ]
    return table(["state", "then", "event", "when"], rows)
