"""ONES beside its rivals on the jobs of its artifact, as a table."""

from collections.abc import Mapping
from statistics import fmean

from analysis.studies.elastic_runs import ElasticRun
from dally.markdown import table
from dally.runs.summary import quantile
from simulator.sweep.groups import Mean, mean, ratio_of_means

TIRESIAS, OPTIMUS, DRL = "tiresias", "optimus:interval_s=60", "drl"
RIVALS = (
    TIRESIAS,
    OPTIMUS,
    DRL,
    "elastic-scaling",
    "srtf",
    "ones",
    "ones:first_size=most",
    "ones:search=padding",
    "ones:first_size=least,padding=limit,counted=running,shrink=all",
)
"""`search=padding` has no evolution; the last is as it was built here before."""

ABLATION = (
    TIRESIAS,
    OPTIMUS,
    "ones",
    "ones:search=padding",
    *(f"ones:candidates={number}" for number in (4, 8, 32)),
    *(f"ones:exchange={part}" for part in (0, 1)),
    *(f"ones:remove={part}" for part in (0, 0.1, 0.6)),
    "ones:padding=limit",
    "ones:counted=running",
    "ones:shrink=all",
    "ones:scale_down=0",
    "ones:first_size=least",
    "ones:first_size=most",
    "ones:gate=all",
    "ones:two_epochs=stretch",
)
"""ONES with one setting changed in each row: without evolution, K, xi, theta, and the rules one by one."""
LINEAR = (
    TIRESIAS,
    OPTIMUS,
    "elastic-scaling",
    "ones",
    "ones:first_size=most",
    "ones:padding=limit",
    "ones:first_size=most,padding=limit",
    "ones:first_size=most,padding=limit,search=padding",
    "ones:first_size=least,padding=limit",
)
"""For jobs that run in proportion to their GPUs."""

_BESIDE = {"Tiresias": TIRESIAS, "Optimus": OPTIMUS, "DRL": DRL}
_PARTS = (0.1, 0.5, 0.9, 0.99)


def artifact_table(found: Mapping[str, Mapping[str, ElasticRun]]) -> str:
    """Markdown: a row for each policy, means over seeds ± half a 95 % interval, percentiles of all jobs."""
    against = [f"against {name}" for name, other in _BESIDE.items() if other in found]
    heads = ["policy", "mean JCT, s", *against, "waiting, s"]
    heads += [f"p{100 * part:.0f}, s" for part in _PARTS]
    return table([*heads, "resizes", "stops"], [_row(spec, found) for spec in found])


def _row(spec: str, found: Mapping[str, Mapping[str, ElasticRun]]) -> list[str]:
    runs = found[spec].values()
    jcts = sorted(jct_s for each in runs for jct_s in each.jcts_s)
    return [
        f"`{spec}`",
        _shown(mean([each.jct_s for each in runs]), 1, "{:.0f}"),
        *(_against(found, spec, other) for other in _BESIDE.values() if other in found),
        f"{fmean(each.wait_s for each in runs):.0f}",
        *(f"{quantile(jcts, part):.0f}" for part in _PARTS),
        f"{fmean(each.resizes for each in runs):.0f}",
        f"{fmean(each.stops for each in runs):.0f}",
    ]


def _against(found: Mapping[str, Mapping[str, ElasticRun]], spec: str, other: str) -> str:
    """How much more or less the mean is than another's, paired by seed."""
    if spec == other:
        return ""
    pairs = [(each.jct_s, found[other][seed].jct_s) for seed, each in found[spec].items()]
    ratio = ratio_of_means(pairs)
    return _shown(Mean(ratio.value - 1, ratio.half), 100, "{:+.0f}") + " %"


def _shown(found: Mean, times: float, how: str) -> str:
    half = "" if found.half is None else f" ± {times * found.half:.0f}"
    return how.format(times * found.value) + half
