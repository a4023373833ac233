"""Works the advice out: calibrates today's scheduler, tries settings of Dally, compares under every case."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from analysis.advise.calibration import TODAYS, Calibration, calibrate
from analysis.advise.effects import EVEN, Effects, SimulatedPair, effects
from analysis.advise.segments import RULES, RuleTimes, check_blocks
from analysis.advise.simulated import Runner, SimulatedTimes, SimulationTask
from analysis.advise.site import ModelAssumption, Site
from analysis.weekly_shares import ShareChange, share_changes
from dally.jobs.priority import DEFAULT_RATIO
from dally.jobs.segment_rule import SegmentRule


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy with knobs.

    Attributes:
        policy: As `dally policies` has it.
        asks: What it needs of a site; empty if the user chose it.
    """

    policy: str
    asks: str


SETTINGS = (
    Setting("srsf-delay:preempt=no,moves=0", "no checkpoints: no job is stopped"),
    Setting("srsf-delay", "checkpoints: jobs are stopped for others and moved"),
    Setting("srsf-delay:fair=user", "checkpoints; users have equal shares before all else"),
)
"""Settings to try, those first that ask least of a site."""


RATIOS = (1.0, 0.9, DEFAULT_RATIO, 0.5, 0.0)
"""What `priority_ratio` in dally.toml may be, from equals only to no priorities at all."""


def choose(settings: Sequence[Setting], outcomes: Sequence[SimulatedTimes]) -> Setting:
    """The setting with the least mean completion time; of those within 1 %, the one that asks for least.

    Args:
        settings: At least one, those that ask for least first.
        outcomes: What became of the jobs under each.
    """
    means_s = [float(outcome.jct_s.mean()) for outcome in outcomes]
    best_s = min(means_s)
    return next(
        setting for setting, mean_s in zip(settings, means_s, strict=True) if mean_s <= best_s * (1 + EVEN)
    )


@dataclass(frozen=True)
class RatioEffects:
    """What a priority ratio does under the first case.

    Attributes:
        ratio: The ratio.
        outcome: What became of the jobs with the chosen setting.
        effects: Which jobs would have gained and which lost, against today's scheduler.
        moved: Of all parts of a week's GPU time, the one that is furthest from what it is today; None if
            the history tells neither users nor groups.
    """

    ratio: float
    outcome: SimulatedTimes
    effects: Effects
    moved: ShareChange | None


@dataclass(frozen=True)
class PolicyComparison:
    """Dally against today's scheduler.

    Attributes:
        settings: The settings tried, each with what became of the jobs under the first case.
        chosen: The setting to start with.
        pairs: Simulations of it and of today's scheduler under every case.
        effects: Which jobs would have gained and which lost.
        ratios: The same with other priority ratios; empty where no priorities are known.
        rules: Both schedulers with rules that set segments, the loosest first; empty if that was not asked.
    """

    settings: Sequence[tuple[Setting, SimulatedTimes]]
    chosen: Setting
    pairs: Sequence[SimulatedPair]
    effects: Effects
    ratios: Sequence[RatioEffects] = ()
    rules: Sequence[RuleTimes] = ()


@dataclass(frozen=True)
class Advice:
    """What a site should know.

    Attributes:
        site: The site.
        cases: What was assumed of the jobs' models.
        today: The simulation of today's scheduler.
        calibration: How far it is from what really happened; None if the history tells no starts.
        assumed: The same error with the models of the first case; None if it is unknown, or was not reached.
        comparison: Dally against it; None if it does not resemble what really happened.
    """

    site: Site
    cases: Sequence[ModelAssumption]
    today: str
    calibration: Calibration | None
    assumed: Calibration | None = None
    comparison: PolicyComparison | None = None

    @property
    def bias_s(self) -> float:
        """The larger error of the simulated mean wait that is known, seconds; 0 if none is."""
        known = [found for found in (self.calibration, self.assumed) if found is not None]
        return max((abs(found.bias_s) for found in known), default=0.0)

    @property
    def concluded(self) -> PolicyComparison | None:
        """The comparison, if its difference exceeds the error of the simulation; else None."""
        if self.comparison is None:
            return None
        whole = self.comparison.effects.whole
        stands_out = abs(whole.today_s - whole.dally_s) > self.bias_s
        return self.comparison if stands_out or self.bias_s <= EVEN * whole.today_s else None


@dataclass(frozen=True, slots=True)
class AdvicePlan:
    """What to simulate.

    Attributes:
        calibrated: Whether there are real starts to hold simulations of today's scheduler against.
        base_known: Whether the calibration has simulated today's scheduler under the first case already.
        todays: What today's scheduler may be; the first if there are none.
        settings: Settings of Dally to try.
        cases: What is assumed of the jobs' models.
        ratios: Priority ratios to try beside the default.
        rules: Rules that set segments, to try with both schedulers.
    """

    calibrated: bool
    base_known: bool
    todays: Sequence[str]
    settings: Sequence[Setting]
    cases: Sequence[ModelAssumption]
    ratios: Sequence[float] = ()
    rules: Sequence[SegmentRule] = ()

    @property
    def simulations(self) -> int:
        """How many simulations this takes."""
        compared = len(self.settings) + 2 * (len(self.cases) - 1) + len(self.ratios) + 2 * len(self.rules)
        return len(self.todays) * self.calibrated + (not self.base_known) + compared


def plan_simulations(
    site: Site,
    today: str | None,
    policy: str | None,
    cases: Sequence[ModelAssumption],
    segments: bool = False,
) -> AdvicePlan:
    """What to simulate.

    Args:
        site: The site.
        today: Today's scheduler; None: the one of several that comes closest to the real starts.
        policy: The only setting of Dally to try; None: several.
        cases: What is assumed of the jobs' models.
        segments: Whether to compare rules that set segments.

    Raises:
        InputError: Rules are to be compared, and could not matter.
    """
    if segments:
        check_blocks(site)
    settings = [Setting(policy, "")] if policy else SETTINGS
    ratios = [ratio for ratio in RATIOS if ratio != DEFAULT_RATIO] if site.priorities else []
    calibrated = bool(site.history.started)
    return AdvicePlan(
        calibrated,
        calibrated and site.costs_nothing,
        [today] if today else TODAYS,
        settings,
        cases,
        ratios,
        RULES if segments else (),
    )


def advise(site: Site, todo: AdvicePlan, simulate: Runner) -> Advice:
    """Carry a plan out, until the simulation proves to be unlike what really happened.

    Raises:
        DallyError: A simulation could not end.
    """
    calibration, calibrated = None, dict[str, SimulatedTimes]()
    if todo.calibrated:
        outcomes = simulate([SimulationTask(policy) for policy in todo.todays])
        calibration = calibrate(site.history, outcomes)
        calibrated = {outcome.task.policy: outcome for outcome in outcomes}
    today = calibration.policy if calibration else todo.todays[0]
    advice = Advice(site, todo.cases, today, calibration)
    if calibration is not None and not calibration.resembles:
        return advice
    task = SimulationTask(today, todo.cases[0])
    if todo.base_known:
        base = replace(calibrated[today], task=task)
    else:
        (base,) = simulate([task])
    if calibration is not None and site.arrival_scale == 1:
        advice = replace(advice, assumed=calibrate(site.history, [base]))
    if advice.assumed is not None and not advice.assumed.resembles:
        return advice
    return replace(advice, comparison=_compare(site, todo, base, simulate))


def _compare(site: Site, todo: AdvicePlan, base: SimulatedTimes, simulate: Runner) -> PolicyComparison:
    """Try the settings under the first case, and the best of them under all."""
    first, *others = todo.cases
    tried = simulate([SimulationTask(each.policy, first) for each in todo.settings])
    chosen = choose(todo.settings, tried)
    best = tried[todo.settings.index(chosen)]
    rest = simulate(
        [SimulationTask(policy, case) for case in others for policy in (base.task.policy, chosen.policy)]
    )
    pairs = [SimulatedPair(base, best), *(SimulatedPair(*rest[at : at + 2]) for at in range(0, len(rest), 2))]
    settings = list(zip(todo.settings, tried, strict=True))
    outcomes = simulate([SimulationTask(chosen.policy, first, ratio) for ratio in todo.ratios])
    if outcomes:
        outcomes = sorted([*outcomes, best], key=lambda outcome: -outcome.task.priority_ratio)
    ratios = [
        RatioEffects(
            outcome.task.priority_ratio,
            outcome,
            effects(site.history, [SimulatedPair(base, outcome)]),
            max(share_changes(base.shares, outcome.shares), key=attrgetter("size"), default=None),
        )
        for outcome in outcomes
    ]
    ruled = simulate(
        [
            SimulationTask(policy, first, segments=rule)
            for policy in (base.task.policy, chosen.policy)
            for rule in todo.rules
        ]
    )
    count = len(todo.rules)
    rules = [RuleTimes(*each) for each in zip(todo.rules, ruled[:count], ruled[count:], strict=True)]
    return PolicyComparison(settings, chosen, pairs, effects(site.history, pairs), ratios, rules)
