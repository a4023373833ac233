"""The settings of the policy `ones`."""

from dataclasses import dataclass

from dally.policies.common.knobs import knob


@dataclass(frozen=True, slots=True)
class OnesKnobs:
    """Settings of `ones`."""

    candidates: int = knob(16, "schedules kept from step to step (K)", least=2, most=10_000)
    exchange: float = knob(0.5, "part of the genes that a crossover exchanges (xi)", least=0, most=1)
    remove: float = knob(0.3, "probability that a mutation removes a job (theta)", least=0, most=1)
    scale_down: float = knob(
        1.0, "how strongly a job loses GPUs that ran longer than others (sigma)", least=0
    )
    interval_s: float = knob(10.0, "steps while jobs run are made at multiples of this", above=0)
    gate: str = knob(
        "each",
        "a job may move once it has finished an epoch since its last move, or once all that are to move have",
        ("each", "all"),
    )
    first_size: str = knob(
        "asked",
        "elastic jobs begin with up to those asked for; their fewest, as published; or the most",
        ("least", "asked", "most"),
    )
    search: str = knob(
        "evolution",
        "candidates evolve; or evolution is off and only what is gets padded",
        ("evolution", "padding"),
    )
    padding: str = knob(
        "turns",
        "idle GPUs go to all in turns that double, or to each at once up to its limit (artifact)",
        ("turns", "limit"),
    )
    counted: str = knob(
        "all",
        "whose work left a schedule's score counts: all jobs', or of those it runs (artifact)",
        ("all", "running"),
    )
    shrink: str = knob(
        "widest",
        "which jobs scale_down concerns: the widest one if it has half of the GPUs (artifact), or all",
        ("widest", "all"),
    )
    predictor_input: str = knob(
        "log", "size of an epoch as the progress is guessed from it; raw as in the artifact", ("log", "raw")
    )
    two_epochs: str = knob(
        "none",
        "limits double when reached; or after two epochs in all, or since the last change",
        ("none", "life", "stretch"),
    )
