"""A stub in sbatch's place, and a folder in which `dally-sbatch` runs with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.patience import LONGEST_S
from tests.slurm_plugin.answering import without_munge

STUB = """#!{python}
import json, os, sys
if sys.argv[1:] == ["--help"]:
    sys.exit(print("      --container-image=IMAGE  from a plugin"))
script = None if sys.stdin.isatty() else sys.stdin.buffer.read().decode("latin-1")
learn = ["DALLY_LEARN", "DALLY_STEPS", "PYTHONPATH"] if "DALLY_LEARN" in os.environ else []
names = ["DALLY_PROGRESS", "DALLY_BATCHING", *learn]
told = {{name: os.environ[name] for name in names if name in os.environ}}
call = dict(argv=sys.argv[1:], stdin=script, told=told)
open({record!r}, "w").write(json.dumps(call))
print("Submitted batch job 17")
print("a warning of sbatch", file=sys.stderr)
sys.exit({exit_code})
"""


class StubbedSite:
    """A folder with a stub of sbatch, a configuration and a script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "call.json"
        (folder / "bin").mkdir()
        self.stub(exit_code=0)
        self._cluster = without_munge(folder)
        self.configure('url = ""')
        self.write("#!/bin/sh\n#SBATCH --gpus=4\ntrap : USR1\nsleep 1\n")

    def stub(self, exit_code: int) -> None:
        sbatch = self.folder / "bin" / "sbatch"
        sbatch.write_text(STUB.format(python=sys.executable, record=str(self.record), exit_code=exit_code))
        sbatch.chmod(0o755)

    def configure(self, *lines: str) -> None:
        (self.folder / "dally.toml").write_text("\n".join(['partitions = ["gpu"]', self._cluster, *lines]))

    def write(self, script: str) -> None:
        (self.folder / "job.sh").write_text(script)

    def submit(
        self, *arguments: str, stdin: bytes = b"", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        self.record.unlink(missing_ok=True)
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("SBATCH", "SLURM"))
        }
        done = subprocess.run(
            [sys.executable, "-c", "from slurm_plugin.submit.sbatch import main; main()", *arguments],
            input=stdin,
            capture_output=True,
            timeout=LONGEST_S,
            cwd=self.folder,
            env={
                **inherited,
                "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
                "DALLY_CONFIG": str(self.folder / "dally.toml"),
                **variables,
            },
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, os.fsdecode(done.stdout), done.stderr.decode()
        )

    @property
    def argv(self) -> list[str]:
        """How the stub was called."""
        found: list[str] = json.loads(self.record.read_text())["argv"]
        return found

    @property
    def told(self) -> dict[str, str]:
        """What the job finds in its environment."""
        found: dict[str, str] = json.loads(self.record.read_text())["told"]
        return found
