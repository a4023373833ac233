#!/usr/bin/env bash
# Makes .venv with Dally and the extras named as arguments; installs what Debian lacks for that. Sourced by the others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'dally: %s\n' "$*" >&2; exit 1; }

make_venv() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "Python 3.11 or newer is needed as python3; install it (Debian 12: apt-get install python3)"
    [ -x .venv/bin/pip ] && return
    rm -rf .venv
    if ! python3 -m venv .venv 2>/dev/null; then
        [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
            fail "python3 cannot make virtual environments; run as root: apt-get install python3-venv"
        echo "installing python3-venv"
        { apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null; } ||
            fail "apt-get could not install python3-venv; check the network and try again"
        rm -rf .venv && python3 -m venv .venv
    fi
}

install_dally() {
    make_venv
    local stamp=".venv/.installed-$1"
    [ -e "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && return
    echo "installing Dally [$1] into .venv"
    .venv/bin/pip install --quiet --disable-pip-version-check --editable ".[$1]" 2>.venv/pip.log ||
        { tail -n 5 .venv/pip.log >&2; fail "pip could not install the packages above; check the network and run again"; }
    touch "$stamp"
}
