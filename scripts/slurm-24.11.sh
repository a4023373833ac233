#!/usr/bin/env bash
# Runs the tests on real Slurm with Debian 13's Slurm 24.11: slurm-24.11.sh [FOLDER [COMMAND...]], as root on Debian.
# Debian 13 is put into FOLDER (default: /tmp/dally-trixie) and kept there; what to expect: docs/slurm-versions.md.
. "$(dirname "$0")/setup.sh"
root=${1:-/tmp/dally-trixie}
shift || true
[ $# -gt 0 ] || set -- .venv/bin/pytest -m slurm tests/testbed tests/slurm_plugin
[ "$(id -u)" = 0 ] || fail "chroot needs root"
command -v debootstrap >/dev/null || fail "debootstrap is needed; as root: apt-get install debootstrap"

if [ ! -e "$root/.made" ]; then
    debootstrap --variant=minbase --include=ca-certificates,python3-venv trixie "$root" http://deb.debian.org/debian \
        >/dev/null || fail "debootstrap could not fill $root; check the network, remove the folder and try again"
    touch "$root/.made"
fi
mkdir -p .venv "$root/dally" "$root/venv"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

# Mounts and processes are this command's own, so that none stays, however it ends.
cat >"$root/mount.sh" <<'MOUNT'
set -eu
root=$1
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind . "$root/dally"
mount --bind "$root/venv" "$root/dally/.venv"
exec chroot "$root" bash /inside.sh "$@"
MOUNT
cat >"$root/inside.sh" <<'INSIDE'
cd /dally
[ -x .venv/bin/pip ] || python3 -m venv .venv
. scripts/setup.sh
install_debian $slurm_packages
install_dally dev
exec "$@"
INSIDE
exec unshare --mount --pid --fork --kill-child bash "$root/mount.sh" "$root" "$@"
