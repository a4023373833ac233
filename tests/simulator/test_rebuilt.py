"""A scheduler built anew from plain data, at any moment, decides as the one that has watched all along."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.jobs.knowledge import Knowledge
from dally.policies.registry import policy_names
from dally.testing import worlds
from dally.testing.properties import STEADY_MODELS, a_rebuilt_policy_decides_the_same
from tests.policy_groups import SEARCHING

WORLDS = st.tuples(st.booleans(), st.booleans()).flatmap(
    lambda drawn: worlds(
        models=STEADY_MODELS, varying=True, filtered=True, segments=drawn[0], whole_blocks=drawn[1]
    )
)
POLICIES = (
    *policy_names(),
    "srsf-delay:lease_s=300,guard_share=0.2",
    "srsf-delay:fair=user,lease_s=60",
    "dally:lease_s=600",
    "dally:timers=manual,machine=1,rack=2,lease_s=900",
    "fifo:backfill=easy",
    "slurm:switch_wait_s=900",
    "tiresias:promote=1,limits=1000+5000+9000,quantum_s=90,regroup_s=500",
    "gandiva:slice_s=400",
    "gavel:objective=ftf,hold_s=0",
    "jps:search=sampled",
    "ones:gate=all,two_epochs=stretch",
)


@pytest.mark.parametrize(
    ("policy", "knowledge"),
    [
        *((policy, Knowledge.EXACT) for policy in POLICIES),
        *(("srsf-delay:lease_s=60", Knowledge(each)) for each in ("limits", "history", "auto", "none")),
    ],
)
def test_a_rebuilt_scheduler_decides_the_same(policy: str, knowledge: Knowledge) -> None:
    examples = 2 if policy.partition(":")[0] in SEARCHING else 5
    more = settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    more(given(world=WORLDS)(lambda world: a_rebuilt_policy_decides_the_same(policy, world, knowledge)))()
