"""Slurm's accounting in a database for a local lab, as sites have it: MariaDB, and slurmdbd before it."""

import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurm_plugin.local_cluster.local_cluster import search_path
from slurm_plugin.local_cluster.local_slurm import LabError, LocalSlurm, free_ports

PACKAGES = ("slurmdbd", "mariadb-server")
"""Debian's packages that it needs beside those of a lab."""

_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr", "sacct")
_HOST = "127.0.0.1"
_INSTALL_S = 120.0


def _missing_programs() -> list[str]:
    """Programs that are not installed here."""
    return [program for program in _PROGRAMS if not shutil.which(program, path=search_path())]


def add_accounting(lab: LocalSlurm, accounts: Mapping[str, Sequence[str]]) -> None:
    """Give a running lab a database of its own for its accounting; both end with the lab.

    Args:
        lab: A lab that has started, of root's.
        accounts: Accounts, each with its users.

    Raises:
        LabError: The packages are missing, or a daemon does not come up.
    """
    if missing := _missing_programs():
        install = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
        raise LabError(f"accounting needs {', '.join(missing)}; on Debian, as root: {install}")
    port, password = free_ports(2), secrets.token_hex(16)
    _start_mariadb(lab, port, password)
    _start_slurmdbd(lab, port, password)
    lab.run("sacctmgr", "--immediate", "add", "cluster", "lab")
    lab.rewrite(replace(lab.spec, extra_conf=(*lab.spec.extra_conf, *_slurm_lines(lab, port + 1))))
    for account, users in accounts.items():
        lab.run("sacctmgr", "--immediate", "add", "account", account)
        lab.run("sacctmgr", "--immediate", "add", "user", ",".join(users), f"account={account}")


def _start_mariadb(lab: LocalSlurm, port: int, password: str) -> None:
    data = lab.spec.folder / "mariadb"
    lab.run("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", timeout_s=_INSTALL_S)
    init = lab.spec.folder / "mariadb.sql"
    init.touch(mode=0o600)
    user = f"'slurm'@'{_HOST}'"
    init.write_text(
        f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO {user};\n"
    )
    command = [
        "mariadbd",
        "--no-defaults",
        "--user=root",
        f"--datadir={data}",
        f"--socket={data}/socket",
        f"--bind-address={_HOST}",
        f"--port={port}",
        f"--init-file={init}",
        f"--pid-file={data}/pid",
        "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    _start(lab, command)
    lab.wait_for((data / "socket").exists, "MariaDB to answer")


def _start_slurmdbd(lab: LocalSlurm, port: int, password: str) -> None:
    folder = lab.spec.folder
    conf = lab.spec.conf.parent / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={lab.spec.socket}\nSlurmUser={lab.spec.user}\n"
        f"DbdHost=localhost\nDbdAddr={_HOST}\nDbdPort={port + 1}\n"
        f"LogFile={folder}/log/slurmdbd.log\nPidFile={folder}/run/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost={_HOST}\nStoragePort={port}\n"
        f"StorageUser=slurm\nStoragePass={password}\nStorageLoc=slurm_acct_db\n"
    )
    with lab.spec.conf.open("a", encoding="utf-8") as file:
        file.write("\n".join(_slurm_lines(lab, port + 1)) + "\n")
    slurmdbd = _start(lab, ["slurmdbd", "-D"])

    def answers() -> bool:
        if slurmdbd.poll() is not None:
            said = (folder / "log" / "slurmdbd.out").read_text(errors="replace").splitlines()
            raise LabError(f"slurmdbd ended: {' | '.join(said[-3:]) or 'it said nothing'}")
        return lab.attempt("sacctmgr", "--noheader", "list", "cluster").returncode == 0

    lab.wait_for(answers, "slurmdbd")


def _slurm_lines(lab: LocalSlurm, port: int) -> tuple[str, ...]:
    """What slurm.conf says of it; later lines win."""
    return (
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={_HOST}",
        f"AccountingStoragePort={port}",
        f"AccountingStoragePass={lab.spec.socket}",
        "AccountingStorageTRES=gres/gpu",
    )


def _start(lab: LocalSlurm, command: list[str]) -> subprocess.Popen[bytes]:
    """Start a daemon; the lab's keeper finds it by its environment and ends it with the lab."""
    with (lab.spec.folder / "log" / f"{command[0]}.out").open("ab") as output:
        return subprocess.Popen(
            command,
            env=lab.environment,
            cwd=lab.spec.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
