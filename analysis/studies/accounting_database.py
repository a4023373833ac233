"""Slurm's accounting in a database for a local cluster, as sites have it: MariaDB, and slurmdbd before it."""

import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_plugin.local_cluster.cluster import ClusterError, search_path
from slurm_plugin.local_cluster.local_slurm import LocalSlurm

PACKAGES = ("slurmdbd", "mariadb-server")
"""Debian's packages that it needs beside those of a local cluster."""

_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr", "sacct")
_HOST = "127.0.0.1"
_INSTALL_S = 120.0


def add_accounting(local_slurm: LocalSlurm, accounts: Mapping[str, Sequence[str]]) -> None:
    """Give a running local cluster a database of its own for its accounting; both end with the cluster.

    Args:
        local_slurm: A local cluster that has started, of root's.
        accounts: Accounts, each with its users.

    Raises:
        ClusterError: The packages are missing, or a daemon does not come up.
    """
    if missing := [program for program in _PROGRAMS if not shutil.which(program, path=search_path())]:
        install = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
        raise ClusterError(f"accounting needs {', '.join(missing)}; on Debian, as root: {install}")
    port, password = local_slurm.reserve_ports(2), secrets.token_hex(16)
    _start_mariadb(local_slurm, port, password)
    _start_slurmdbd(local_slurm, port, password)
    local_slurm.run("sacctmgr", "--immediate", "add", "cluster", "lab")
    # Its id is of its own making; a slurmctld of 26.05 ends where slurmdbd then gives it another.
    (local_slurm.spec.folder / "state" / "clustername").unlink()
    local_slurm.rewrite(
        replace(
            local_slurm.spec, extra_conf=(*local_slurm.spec.extra_conf, *_slurm_lines(local_slurm, port + 1))
        )
    )
    for account, users in accounts.items():
        local_slurm.run("sacctmgr", "--immediate", "add", "account", account)
        local_slurm.run("sacctmgr", "--immediate", "add", "user", ",".join(users), f"account={account}")


def _start_mariadb(local_slurm: LocalSlurm, port: int, password: str) -> None:
    data, temporary = local_slurm.spec.folder / "mariadb", local_slurm.spec.folder / "mariadb.tmp"
    temporary.mkdir()
    # In /tmp two databases that are made at the same time take each other's temporary tables.
    where = ("--no-defaults", "--user=root", f"--datadir={data}", f"--tmpdir={temporary}")
    local_slurm.run("mariadb-install-db", *where, timeout_s=_INSTALL_S)
    init = local_slurm.spec.folder / "mariadb.sql"
    init.touch(mode=0o600)
    user = f"'slurm'@'{_HOST}'"
    init.write_text(
        f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO {user};\n"
    )
    command = [
        "mariadbd",
        *where,
        f"--socket={data}/socket",
        f"--bind-address={_HOST}",
        f"--port={port}",
        f"--init-file={init}",
        f"--pid-file={data}/pid",
        "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    local_slurm.start_daemon("mariadbd", command)
    local_slurm.wait_up("mariadbd", (data / "socket").exists)


def _start_slurmdbd(local_slurm: LocalSlurm, port: int, password: str) -> None:
    folder = local_slurm.spec.folder
    conf = local_slurm.spec.conf.parent / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={local_slurm.spec.socket}\nSlurmUser={local_slurm.spec.user}\n"
        f"DbdHost=localhost\nDbdAddr={_HOST}\nDbdPort={port + 1}\n"
        f"LogFile={folder}/log/slurmdbd.log\nPidFile={folder}/run/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost={_HOST}\nStoragePort={port}\n"
        f"StorageUser=slurm\nStoragePass={password}\nStorageLoc=slurm_acct_db\n"
    )
    with local_slurm.spec.conf.open("a", encoding="utf-8") as file:
        file.write("\n".join(_slurm_lines(local_slurm, port + 1)) + "\n")
    local_slurm.start_daemon("slurmdbd", ["slurmdbd", "-D"])
    asked = ("sacctmgr", "--noheader", "list", "cluster")
    local_slurm.wait_up("slurmdbd", lambda: local_slurm.attempt(*asked).returncode == 0)


def _slurm_lines(local_slurm: LocalSlurm, port: int) -> tuple[str, ...]:
    """Return the lines of slurm.conf about accounting; later lines win."""
    return (
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={_HOST}",
        f"AccountingStoragePort={port}",
        f"AccountingStoragePass={local_slurm.spec.socket}",
        "AccountingStorageTRES=gres/gpu",
    )
