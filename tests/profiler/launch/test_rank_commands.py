from dataclasses import replace

from dally.profiles.schema import PointShape
from profiler.launch.rank_commands import rank_commands
from profiler.spec import parse_spec
from tests.profiler.driver.worlds import make_run

RUN = replace(make_run(), shape=PointShape(2, 2, "blocked", 1))


def test_ranks_fill_one_host_after_another() -> None:
    commands = rank_commands(RUN, "10.0.0.1")

    places = [(item.host, item.env["RANK"], item.env["LOCAL_RANK"]) for item in commands]
    assert places == [("h1", "0", "0"), ("h1", "1", "1"), ("h2", "2", "0"), ("h2", "3", "1")]
    assert [item.name for item in commands[1:3]] == ["rank 1 on h1", "rank 2 on h2"]


def test_all_ranks_meet_at_one_place_with_one_order() -> None:
    commands = rank_commands(RUN, "10.0.0.1")

    meeting = {
        (item.env["MASTER_ADDR"], item.env["MASTER_PORT"], item.env["WORLD_SIZE"]) for item in commands
    }
    assert len(meeting) == 1
    assert {parse_spec(item.argv[-1]) for item in commands} == {RUN.spec}
