import io
import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dally.jobs.job import Job, JobKind
from dally.traces import common_csv, load_trace, write_workload
from dally.traces.rows import JobCollector

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TIMES_S = st.floats(0, 1e9, allow_nan=False)
LENGTHS_S = st.floats(1e-3, 1e9)


@st.composite
def shared(draw: st.DrawFn, gpus: int) -> tuple[int | None, int | None]:
    """GPUs on each machine of a job, and machines in each of its segments."""
    each = draw(st.sampled_from([None, *(share for share in range(1, gpus + 1) if gpus % share == 0)]))
    machines = 0 if each is None else gpus // each
    segments = [size for size in range(1, machines + 1) if machines % size == 0]
    return each, draw(st.sampled_from([None, *segments]))


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    ids = draw(st.lists(NAMES.filter(bool), min_size=1, max_size=8, unique=True))
    made = []
    for job_id in ids:
        gpus, kind = draw(st.integers(1, 64)), draw(st.sampled_from(JobKind))
        each, segment = draw(shared(gpus)) if kind is JobKind.RIGID else (None, None)
        made.append(
            Job(
                job_id,
                draw(TIMES_S),
                gpus,
                draw(LENGTHS_S),
                draw(NAMES),
                draw(NAMES),
                draw(NAMES),
                draw(NAMES),
                gpu_type=draw(st.none() | NAMES.filter(bool)),
                kind=kind,
                min_gpus=draw(st.none() | st.integers(1, gpus)),
                max_gpus=draw(st.none() | st.integers(gpus, 128)),
                max_copies=draw(st.integers(1, 4 if kind is JobKind.FORKED else 1)),
                time_limit_s=draw(st.none() | LENGTHS_S),
                preemptible=draw(st.booleans()),
                gpus_per_machine=each,
                segment=segment,
                spread_segments=segment is not None and draw(st.booleans()),
                consolidate_segments=segment is not None and draw(st.booleans()),
                whole_blocks=kind is JobKind.RIGID and draw(st.booleans()),
            )
        )
    return made


@given(jobs())
def test_what_is_written_reads_back_the_same(made: list[Job]) -> None:
    text = io.StringIO(newline="")
    common_csv.write(made, text)
    collector = JobCollector("memory")
    common_csv.read(text.getvalue(), collector)
    assert collector.jobs == made


def test_a_written_file_is_complete_and_the_same_every_time(tmp_path: Path) -> None:
    made = [Job("a", 0, 1, 5), Job("b", 1.5, 2, math.pi)]
    for name in ("t.csv", "t.csv.gz"):
        write_workload(made, tmp_path / name)
        first = (tmp_path / name).read_bytes()
        write_workload(made, tmp_path / name)
        assert (tmp_path / name).read_bytes() == first
        assert list(load_trace(tmp_path / name).jobs) == made
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.csv.gz"]
