"""The scripts of docs/preemptible-scripts.md, word for word, on a real Slurm: requeued, and COMPLETED."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dally.errors import DallyError
from dally.hosts.network_spec import INTERFACE, NetworkSpec, Rack
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite, sleeping

PAGE = (Path(__file__).parents[2] / "docs" / "preemptible-scripts.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
STEPS = 1_000_000
LEFT = 3
"""Steps that are left to do when the job goes on: in its checkpoint the test moves it close to its end."""


@pytest.fixture
def site(cluster_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSite]:
    """Two nodes of two GPUs that know each other by name, with the page's files in the jobs' folder."""
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, gpus=2, network=NetworkSpec((Rack(2),))))
    monkeypatch.setenv("PATH", os.pathsep.join((str(local_slurm.work / "bin"), os.environ["PATH"])))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", INTERFACE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    try:
        local_slurm.start()
    except DallyError as error:
        pytest.fail(str(error), pytrace=False)
    write_programs(local_slurm.work)
    real = RealSite(local_slurm, "dally:timers=no-wait,lease_s=1")
    yield real
    real.journal.close()
    local_slurm.stop()


def write_programs(work: Path) -> None:
    """The page's files, and programs that they call by name."""
    (work / "bin").mkdir()
    for name, module in (("python", ""), ("torchrun", "-m torch.distributed.run")):
        (work / "bin" / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n', encoding="utf-8"
        )
        (work / "bin" / name).chmod(0o755)
    for name, text in FILES.items():
        (work / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("script", "options"),
    [("srun.sh", ("--gpus-per-node=1", "--ntasks-per-node=1")), ("torchrun.sh", ())],
    ids=["srun.sh", "torchrun.sh"],
)
def test_the_script_is_put_back_with_its_checkpoint_and_goes_on_to_its_end(
    site: RealSite, script: str, options: tuple[str, ...]
) -> None:
    """Two ranks of a node are torchrun's; each takes seconds to load torch, twice."""
    work = site.local_slurm.work
    job = site.submit(*options, script)
    output, checkpoint = work / f"{script}-{job}.txt", work / f"model-{job}.pt"
    site.until(lambda: output.exists() and "goes on after step 0" in output.read_text(), "the job to train")
    other = sleeping(site, 2, "--nodes=2", "--gpus-per-node=2")
    site.until(lambda: site.state(job) == "PENDING", "the job to make room")
    saved = torch.load(checkpoint)
    assert 0 < saved["step"] < STEPS
    torch.save({**saved, "step": STEPS - LEFT}, checkpoint)
    site.until(lambda: site.state(job) not in ("PENDING", "RUNNING", "COMPLETING"), "the job to end")
    assert site.state(job) == "COMPLETED", output.read_text()
    assert f"goes on after step {STEPS - LEFT}" in output.read_text()
    assert torch.load(checkpoint)["step"] == STEPS
    assert site.state(other) == "COMPLETED"
