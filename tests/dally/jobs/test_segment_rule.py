"""Rules that set segments by the size of a job."""

from dally.jobs.segment_rule import NO_SEGMENTS, STATIC_SEGMENTS, SegmentRule


def test_a_segment_divides_the_machines_of_its_job() -> None:
    sizes = (4, 8, 40, 72, 132, 148)
    assert [STATIC_SEGMENTS.segment(gpus, 4) for gpus in sizes] == [None, 1, 2, 3, 11, 1]


def test_a_segment_is_no_larger_than_a_block() -> None:
    assert STATIC_SEGMENTS.segment(128, 4, block=12) == 8


def test_without_a_rule_no_job_has_segments() -> None:
    assert NO_SEGMENTS.segment(128, 4) is None


def test_rules_say_what_they_are() -> None:
    assert [str(rule) for rule in (NO_SEGMENTS, STATIC_SEGMENTS)] == ["none", "128:16,32:4"]
    assert STATIC_SEGMENTS.text == "16 machines from 128 GPUs on, 4 machines from 32 GPUs on"
    assert SegmentRule(((0, 16),)).text == "up to 16 machines"
