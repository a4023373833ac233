"""Files on a cluster's head node, written and read through the cluster; there, it is the program for that.

`python -m testbed.running.head_files put < {path: text}` writes files; `get FOLDER` prints those of a folder.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from dally.atomic_file import write_atomically
from slurm_plugin.local_cluster.cluster import Cluster

_BINARY = (".pt", ".sqlite", "-journal")
_LONGEST_S = 120.0


def put_files(cluster: Cluster, files: Mapping[str, str]) -> None:
    """Write text files, by absolute path, on the head node, and make their folders.

    Raises:
        ClusterError: It cannot be done.
    """
    cluster.ask(cluster.python, "-P", "-m", __name__, "put", stdin=json.dumps(files), timeout_s=_LONGEST_S)


def get_files(cluster: Cluster, folder: Path) -> dict[str, str]:
    """The text files below a folder of the head node, by path within it; none if there is no such folder.

    Raises:
        ClusterError: It cannot be done.
    """
    said = cluster.ask(cluster.python, "-P", "-m", __name__, "get", str(folder), timeout_s=_LONGEST_S)
    files: dict[str, str] = json.loads(said)
    return files


def main(arguments: list[str]) -> None:
    """Write the files of standard input, or print those of a folder."""
    if arguments[0] == "put":
        for name, text in json.load(sys.stdin).items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(Path(name), text)
        return
    folder = Path(arguments[1])
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(_BINARY))
    texts = {str(path.relative_to(folder)): path.read_text("utf-8", "replace") for path in paths}
    json.dump(texts, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
