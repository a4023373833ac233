"""What would have changed, in sentences: only where the simulation bears a conclusion."""

from collections.abc import Iterator

from analysis.advise.advice import Advice, PolicyComparison
from analysis.advise.effects import EVEN, OTHER, Effect, changes_by_case
from analysis.advise.site import ModelAssumption
from dally.words import duration, plural, share

_MOST_LOSERS = 5


def trust(advice: Advice, found: PolicyComparison) -> str:
    """The difference that Dally makes against the error of the simulation; empty if that is not known."""
    whole = found.effects.whole
    gain_s = abs(whole.today_s - whole.dally_s)
    if advice.calibration is None or whole.verdict == "even" or gain_s <= advice.bias_s:
        return ""
    return (
        f"It stands out from the error of the simulation: the difference is {duration(gain_s)} a job, the "
        f"error of the mean {duration(advice.bias_s)}; with that taken off, "
        f"{duration(gain_s - advice.bias_s)} are left."
    )


def claim(found: PolicyComparison) -> str:
    """In a sentence, what would have changed."""
    whole = found.effects.whole
    if whole.verdict == "even":
        return "Dally would have changed little: jobs would have ended as soon as they do, within 1 %"
    if whole.verdict == "depends":
        return (
            "Whether Dally would have helped depends on what the jobs train: "
            f"completion times {_range(whole)} on average"
        )
    how = "sooner" if whole.verdict == "gain" else "later"
    return f"Under Dally, jobs would have ended {share(abs(whole.change))} {how} on average{_spread(whole)}"


def models_told(advice: Advice) -> str:
    """What is known of the jobs' models, as part of the headline; empty if all is."""
    if advice.site.profiles is None:
        return "no profiles were given, so distance costs nothing"
    wide = sum(past.job.gpus > 1 for past in advice.site.history.jobs)
    of = f"of {plural(wide, 'job')} with several GPUs"
    if advice.cases[0].mix:
        drawn = advice.site.unknown(ModelAssumption("named"))
        return f"{of}, the models of {drawn:,} are drawn from a mix"
    unknown = advice.site.unknown(advice.cases[0])
    return f"{of}, the models of {unknown:,} are unknown, so distance costs them nothing" if unknown else ""


def verdict_lines(advice: Advice, found: PolicyComparison) -> Iterator[str]:
    """The means behind the title, how many jobs gain and lose, and what the network did."""
    whole = found.effects.whole
    yield (
        f"Mean completion time {duration(whole.dally_s)} instead of {duration(whole.today_s)}, of it waiting "
        f"{duration(whole.dally_wait_s)} instead of {duration(whole.today_wait_s)}, under "
        f"{found.chosen.policy} against {advice.today}."
    )
    if whole.today_wait_s < EVEN * whole.today_s:
        yield (
            "Jobs hardly wait on this cluster, so no scheduler can gain much: a higher load "
            f"(--arrival-scale {0.7 * advice.site.arrival_scale:.2g}) shows what more jobs would mean."
        )
    yield (
        f"Of {plural(whole.jobs, 'job')}, {share(whole.sooner)} end sooner, {share(whole.later)} later, the "
        "others as soon within 1 %."
    )
    if line := trust(advice, found):
        yield line


def losers_line(found: PolicyComparison) -> str:
    """Who would lose."""
    sizes = [each for each in found.effects.sizes if each.change > EVEN]
    named = [f"jobs of {each.name} ({percent(each.change)})" for each in sizes]
    people = found.effects.losers
    named += [f"{each.name} ({percent(each.change)})" for each in people[:_MOST_LOSERS]]
    more = f" and {len(people) - _MOST_LOSERS} more" if len(people) > _MOST_LOSERS else ""
    if not named:
        return "Nobody would lose: of no size, group or user do jobs end later by more than 1 % on average."
    return f"Who would lose: {', '.join(named)}{more}."


def settings_lines(advice: Advice, found: PolicyComparison) -> Iterator[str]:
    """With which settings to start."""
    if found.effects.whole.verdict == "even" and len(found.settings) > 1:
        yield f"No setting matters here; the one that asks least of a site is {found.chosen.policy}."
    elif not found.chosen.asks:
        yield f"Only {found.chosen.policy} was tried; without --policy, several settings are compared."
    else:
        yield f'Start with policy = "{found.chosen.policy}" in dally.toml; it asks for {found.chosen.asks}.'
    yield "Let it run beside Slurm first: dally controller --shadow decides and orders nothing."


def case_lines(advice: Advice, found: PolicyComparison) -> Iterator[str]:
    """What each case of the jobs' models came to."""
    if advice.site.profiles is None:
        return
    for name, changes in changes_by_case(found.pairs):
        case = next(each for each in advice.cases if each.name == name)
        low, high = percent(min(changes)), percent(max(changes))
        between = f"{low} to {high}, " if low != high else ""
        seeds = f" ({between}{len(changes)} seeds)" if len(changes) > 1 else ""
        mix = f", the others drawn from {_mix(case.mix)}" if case.mix else ""
        yield f"{name.capitalize()}{mix}: completion times {percent(changes[0])}{seeds}."


def changes(compared: PolicyComparison) -> list[tuple[str, Effect]]:
    """Whose completion times a figure compares: all jobs, sizes, groups and users, each with its name."""
    found = compared.effects
    return [
        ("all jobs", found.whole),
        *((f"jobs of {each.name}", each) for each in found.sizes),
        *(_named("group", each) for each in found.groups),
        *(_named("user", each) for each in found.users),
    ]


def _named(kind: str, effect: Effect) -> tuple[str, Effect]:
    return effect.name if effect.name.startswith(f"{OTHER} ") else f"{kind} {effect.name}", effect


def _mix(text: str) -> str:
    parts = (part.partition("=") for part in text.split(","))
    weights = {name: float(weight) for name, _, weight in parts}
    total = sum(weights.values())
    return ", ".join(f"{name} {share(weight / total)}" for name, weight in weights.items())


def percent(part: float) -> str:
    """A change with its sign, in whole per cent."""
    return f"{100 * part:+.0f} %" if abs(part) >= 0.005 else "±0 %"


def _range(effect: Effect) -> str:
    return f"{percent(effect.least)} to {percent(effect.most)}"


def _spread(effect: Effect) -> str:
    if effect.most - effect.least < EVEN:
        return ""
    low, high = sorted((abs(effect.least), abs(effect.most)))
    return f" ({share(low)} to {share(high)}, by what they train)"
