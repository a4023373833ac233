#!/usr/bin/env bash
# Makes .venv with Dally and the extras named as arguments; installs what Debian lacks for that. Sourced by the others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch=torch==2.13.0  # the release that the tests are known to pass with
test_extras=solvers,analysis,training,ssh,dask,docs,dev
slurm_packages="slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins lua5.4 systemd"
accounting_packages="slurmdbd mariadb-server"
network_packages="iproute2 util-linux openssh-server"
browser_packages="chromium fonts-dejavu-core"

fail() { printf 'dally: %s\n' "$*" >&2; exit 1; }

new_enough() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

debian_python() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "Python 3.11 or newer with venv is needed as python3; as root: apt-get install python3 python3-venv"
    echo "installing python3 and python3-venv"
    { apt-get -qq update && apt-get -qq install -y python3 python3-venv >/dev/null; } ||
        fail "apt-get could not install python3-venv; check the network and try again"
    new_enough || fail "this system's python3 is older than 3.11; install a newer one as python3"
}

make_venv() {
    [ -x .venv/bin/pip ] && return
    rm -rf .venv
    new_enough && python3 -m venv .venv 2>/dev/null && return
    debian_python
    rm -rf .venv && python3 -m venv .venv
}

install_dally() {
    make_venv
    local stamp=".venv/.installed-$1"
    [ -e "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && return
    echo "installing Dally [$1] into .venv"
    case "$1" in *training*) pip_install "$torch" ;; esac
    pip_install --editable ".[$1]"
    touch "$stamp"
}

pip_install() {
    .venv/bin/pip install --quiet --disable-pip-version-check "$@" 2>.venv/pip.log ||
        { tail -n 5 .venv/pip.log >&2; fail "pip could not install the packages above; check the network and run again"; }
}

# The packages start daemons of their own when installed; the tests start others, with a configuration of their own.
without_services() (
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] || { trap 'rm -f "$policy"' EXIT; printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"; }
    "$@"
)

install_debian() {
    dpkg --status "$@" >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "Debian packages are missing; as root: apt-get install --no-install-recommends $*"
    echo "installing Debian packages: $*"
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive without_services \
        apt-get -qq install -y --no-install-recommends "$@" >/dev/null; } ||
        fail "apt-get could not install $*; check the network and try again"
}
