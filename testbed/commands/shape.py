"""`dally testbed shape`: limit what real hosts send, show it, and put everything back."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from dally.commands.terminal import say
from dally.errors import InputError
from dally.hosts.hosts_file import HostsFile, read_hosts_file
from dally.hosts.ssh import each
from profiler.commands import values
from testbed.commands.options import hosts_option, logs_option
from testbed.remote.hosts import CommandLog, Hosts, RemoteError, all_or_error, next_address
from testbed.remote.qdiscs import in_words
from testbed.remote.shaping import inspect_interface, qdiscs_of, recorded, restore, shape

_LEAST_BPS, _MOST_BPS = 1e6, 1e12


@click.command(
    epilog="""\b
Examples:
  dally testbed shape --hosts hosts.toml --rate 200Mb
  dally testbed shape --hosts hosts.toml --restore
Each host limits what it sends, so a limit on all hosts holds both ways."""
)
@hosts_option
@logs_option
@click.option("--rate", type=values.rate, help="What each host may send from now on, such as 200Mb.")
@click.option("--restore", "is_restoring", is_flag=True, help="Put back what was there before.")
@click.option("--show", "is_showing", is_flag=True, help="Only tell what is there.")
@click.option("--interface", help="Which one; by default the one that leads to the other hosts.")
@click.option("--only", metavar="HOST,...", help="These hosts instead of all.")
@click.option("--yes", is_flag=True, help="Do not ask before an interface that carries the SSH connection.")
def command(
    hosts_file: Path,
    logs: Path,
    rate: float | None,
    is_restoring: bool,
    is_showing: bool,
    interface: str | None,
    only: str | None,
    yes: bool,
) -> None:
    """Limit what real hosts send, as slower network cards would; needs root on them.

    What was there is recorded on each host first, and --restore brings it back exactly; where that could not
    be done, nothing is touched on any host. A reboot undoes it too.
    """
    if [rate is not None, is_restoring, is_showing].count(True) != 1:
        raise click.UsageError("give one of --rate, --restore and --show")
    whole = read_hosts_file(hosts_file)
    with Hosts(_only(whole, only), CommandLog(logs)) as hosts:
        if is_restoring:
            _on_all(hosts, lambda name: _restore(hosts, name, interface))
        elif is_showing:
            _on_all(hosts, lambda name: _show(hosts, name, interface, next_address(whole, name)))
        else:
            assert rate is not None
            _shape(hosts, whole, interface, rate, yes)


def _shape(hosts: Hosts, whole: HostsFile, interface: str | None, rate_bps: float, yes: bool) -> None:
    """Inspect all interfaces before any is changed, and ask before what could cut us off."""
    if not _LEAST_BPS <= rate_bps <= _MOST_BPS:
        raise InputError(f"--rate is {rate_bps:g} bits per second, must be 1e6 to 1e12")
    names = [host.name for host in hosts.file.hosts]
    places = all_or_error(
        each(names, lambda name: inspect_interface(hosts, name, interface, next_address(whole, name)))
    )
    carrying = [f"{place.interface} of {name}" for name, place in places.items() if place.carries_ssh]
    if carrying and not yes:
        carries = (
            f"{', '.join(carrying)} also {'carries' if len(carrying) == 1 else 'carry'} this SSH connection"
        )
        if not sys.stdin.isatty():
            raise RemoteError(f"{carries}; nothing was changed; --yes shapes all the same")
        click.confirm(f"{carries}. Shape all the same?", abort=True)

    def act(name: str) -> str:
        place = places[name]
        shape(hosts, place, rate_bps)
        limit = f"{name}: {place.interface} sends at most {rate_bps / 1e6:g} Mb/s"
        return f"{limit}; before: {in_words(place.before)}"

    _on_all(hosts, act)


def _restore(hosts: Hosts, name: str, interface: str | None) -> str:
    done = restore(hosts, name, interface)
    restored = ", ".join(f"{found} has {in_words(now)} as before" for found, now in done.items())
    return f"{name}: {restored or 'nothing to restore'}"


def _show(hosts: Hosts, name: str, interface: str | None, peer: str | None) -> str:
    place = interface or inspect_interface(hosts, name, None, peer).interface
    marked = " (by Dally)" if place in recorded(hosts, name) else ""
    return f"{name}: {place} has {in_words(qdiscs_of(hosts, name, place))}{marked}"


def _on_all(hosts: Hosts, act: Callable[[str], str]) -> None:
    """Do the same on all hosts; tell what succeeded, then raise a `RemoteError` for what did not."""
    done = each([host.name for host in hosts.file.hosts], act)
    for said in done.values():
        if isinstance(said, str):
            say(said)
    all_or_error(done)


def _only(file: HostsFile, only: str | None) -> HostsFile:
    if only is None:
        return file
    names = [name.strip() for name in only.split(",")]
    valid = [host.name for host in file.hosts]
    unknown = [name for name in names if name not in valid]
    if unknown:
        raise InputError(f"--only names {unknown[0]!r}; valid: {', '.join(valid)}")
    return replace(file, hosts=tuple(host for host in file.hosts if host.name in names))
