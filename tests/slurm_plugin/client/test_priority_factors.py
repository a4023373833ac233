"""Text of Slurm 22.05.8 with accounting: two accounts, two QOS, two partitions, all weights set."""

from math import inf

import pytest

from slurm_plugin.client.node_text import read_settings
from slurm_plugin.client.priority_factors import (
    booked_every_s,
    read_fair_shares,
    read_partition_factors,
    read_qos_factors,
    read_weights,
)
from slurm_plugin.client.slurm import PriorityFactors

CONFIG = """PrioritySiteFactorPlugin = (null)
PriorityDecayHalfLife   = 7-00:00:00
PriorityCalcPeriod      = 00:01:00
PriorityFavorSmall      = No
PriorityFlags           =\x20
PriorityMaxAge          = 7-12:00:00
PriorityUsageResetPeriod = NONE
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightAssoc     = 0
PriorityWeightFairShare = 10000
PriorityWeightJobSize   = 100
PriorityWeightPartition = 500
PriorityWeightQOS       = 2000
PriorityWeightTRES      = (null)
PrivateData             = none
"""

SHARES = """root||
 root|root|1.000000
 text||
  text|root|0.500000
 vision||
  vision|daemon|0.250000
  vision|games|0.000000
"""

PARTITIONS = """PartitionName=gpu Default=YES MaxTime=UNLIMITED PriorityJobFactor=1 PriorityTier=1 State=UP
PartitionName=night Default=NO MaxTime=UNLIMITED PriorityJobFactor=7 PriorityTier=1 State=UP
"""


def test_weights_are_read_as_slurm_shows_its_settings() -> None:
    assert read_weights(read_settings(CONFIG)) == PriorityFactors(
        weight_age=1000,
        weight_fair_share=10_000,
        weight_job_size=100,
        weight_partition=500,
        weight_qos=2000,
        max_age_s=7.5 * 86_400,
        favors_small=False,
        period_s=60,
    )


def test_priorities_in_order_of_arrival_have_no_factors() -> None:
    assert read_weights(read_settings(CONFIG.replace("multifactor", "basic"))) is None
    assert read_weights({}) is None


def test_small_jobs_may_be_favoured() -> None:
    small = read_weights(read_settings(CONFIG.replace("FavorSmall      = No", "FavorSmall      = Yes")))
    assert small is not None
    assert small.favors_small


def test_fair_shares_are_those_of_users_in_accounts() -> None:
    assert read_fair_shares(SHARES) == {
        ("root", "root"): 1.0,
        ("text", "root"): 0.5,
        ("vision", "daemon"): 0.25,
        ("vision", "games"): 0.0,
    }


def test_partitions_and_qos_count_against_the_greatest() -> None:
    assert read_partition_factors(PARTITIONS) == {"gpu": pytest.approx(1 / 7), "night": 1.0}
    assert read_qos_factors("normal|0\nhigh|40\nlow|10\n") == {"normal": 0.0, "high": 1.0, "low": 0.25}
    assert read_qos_factors("normal|0\n") == {"normal": 0.0}


@pytest.mark.parametrize("text", ["", "sshare: error\n", "a|b\n", "|||\n", "a|b|nan\n", "a|b|-1\n"])
def test_rows_that_make_no_sense_are_passed_over(text: str) -> None:
    assert read_fair_shares(text) == {}


def test_priority_basic_never_books_what_running_jobs_have_had() -> None:
    assert booked_every_s(read_settings(CONFIG)) == 60.0
    assert booked_every_s(read_settings(CONFIG.replace("priority/multifactor", "priority/basic"))) == inf
