"""Works the advice out: calibrates today's scheduler, tries settings of Dally, compares under every case."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.advise.calibration import TODAYS, Calibration, calibrate
from analysis.advise.effects import Effects, Pair, effects
from analysis.advise.settings import SETTINGS, Setting, choose
from analysis.advise.simulated import Outcome, Runner, Task
from analysis.advise.site import Case, Site


@dataclass(frozen=True)
class Advice:
    """What a site should know.

    Attributes:
        site: The site.
        cases: What was assumed of the jobs' models.
        today: The simulation of today's scheduler.
        calibration: How far it is from what really happened; None if the history tells no starts.
        settings: The settings tried, each with what became of the jobs under the first case.
        chosen: The one to start with.
        pairs: It against today's scheduler under every case.
        effects: Who would have gained and who lost.
    """

    site: Site
    cases: Sequence[Case]
    today: str
    calibration: Calibration | None
    settings: Sequence[tuple[Setting, Outcome]]
    chosen: Setting
    pairs: Sequence[Pair]
    effects: Effects


@dataclass(frozen=True, slots=True)
class Plan:
    """What to simulate.

    Attributes:
        calibrated: Whether there are real starts to hold simulations of today's scheduler against.
        todays: What today's scheduler may be; the first if there are none.
        settings: Settings of Dally to try.
        cases: What is assumed of the jobs' models.
    """

    calibrated: bool
    todays: Sequence[str]
    settings: Sequence[Setting]
    cases: Sequence[Case]

    @property
    def simulations(self) -> int:
        """How many simulations this takes."""
        return len(self.todays) * self.calibrated + 1 + len(self.settings) + 2 * (len(self.cases) - 1)


def plan(site: Site, today: str | None, policy: str | None, cases: Sequence[Case]) -> Plan:
    """What to simulate.

    Args:
        site: The site.
        today: Today's scheduler; None: the one of several that comes closest to the real starts.
        policy: The only setting of Dally to try; None: several.
        cases: What is assumed of the jobs' models.
    """
    settings = [Setting(policy, "")] if policy else SETTINGS
    return Plan(bool(site.history.started), [today] if today else TODAYS, settings, cases)


def advise(site: Site, todo: Plan, simulate: Runner) -> Advice:
    """Carry a plan out.

    Raises:
        DallyError: A simulation could not end.
    """
    calibration = None
    if todo.calibrated:
        calibration = calibrate(site.history, simulate([Task(policy) for policy in todo.todays]))
    today = calibration.policy if calibration else todo.todays[0]
    first, *others = todo.cases
    base, *tried = simulate([Task(today, first), *(Task(each.policy, first) for each in todo.settings)])
    chosen = choose(todo.settings, tried)
    best = tried[todo.settings.index(chosen)]
    rest = simulate([Task(policy, case) for case in others for policy in (today, chosen.policy)])
    pairs = [Pair(base, best), *(Pair(*rest[at : at + 2]) for at in range(0, len(rest), 2))]
    return Advice(
        site,
        todo.cases,
        today,
        calibration,
        list(zip(todo.settings, tried, strict=True)),
        chosen,
        pairs,
        effects(site.history, pairs),
    )
