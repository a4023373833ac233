"""Advice for programs."""

from dataclasses import asdict

from analysis.advise import words
from analysis.advise.advice import Advice, PolicyComparison


def as_data(advice: Advice) -> dict[str, object]:
    """The numbers and sentences of advice, for JSON."""
    found = advice.calibration
    return {
        "calibration": None
        if found is None
        else {
            "policy": found.policy,
            "jobs": len(found.wait_s),
            "real_wait_s": float(found.real_wait_s.mean()),
            "wait_s": float(found.wait_s.mean()),
            "start_error_s": found.error_s,
            "mean_completion_error": found.mean_error,
            "completions_met": found.close,
            "unexplained": found.unexplained,
            "tried": [asdict(each) for each in found.tried],
        },
        "knowledge": str(advice.site.knows),
        "title": words.title(advice),
        "lines": [*words.calibration_lines(advice), *words.finding_lines(advice)],
        "today": advice.today,
        "concluded": advice.concluded is not None,
        **(_compared(advice.concluded) if advice.concluded else {}),
    }


def _compared(found: PolicyComparison) -> dict[str, object]:
    return {
        "start_with": found.chosen.policy,
        "settings": {
            setting.policy: {"jct_s": float(outcome.jct_s.mean()), "wait_s": float(outcome.wait_s.mean())}
            for setting, outcome in found.settings
        },
        "effects": {
            "all": asdict(found.effects.whole),
            **{
                kind: [asdict(each) for each in getattr(found.effects, kind)]
                for kind in ("sizes", "groups", "users", "losers")
            },
        },
    }
