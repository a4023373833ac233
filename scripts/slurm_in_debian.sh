#!/usr/bin/env bash
# Runs every test that starts Slurm on another Debian's Slurm: slurm_in_debian.sh SUITE [COMMAND...], as root on Debian.
# The suite (trixie, testing, ...) is put into ${TMPDIR:-/tmp}/dally-SUITE and kept there; more: docs/slurm-versions.md.
. "$(dirname "$0")/setup.sh"
[ $# -gt 0 ] || fail "say which suite of Debian: slurm_in_debian.sh SUITE [COMMAND...], like trixie or testing"
suite=$1
shift
[ $# -gt 0 ] || set -- .venv/bin/pytest -m slurm -rfEs
root=${TMPDIR:-/tmp}/dally-$suite
[ "$(id -u)" = 0 ] || fail "chroot needs root"
command -v debootstrap >/dev/null || fail "debootstrap is needed; as root: apt-get install debootstrap"
[ -e "/usr/share/debootstrap/scripts/$suite" ] || fail "debootstrap knows no suite called $suite"

# The mirror that this machine's own Debian comes from; what apt knows of it, it knows after an update.
debian_mirror() {
    local main=("Created-By: Packages" "Origin: Debian" "Label: Debian" "Component: main")
    apt-get indextargets --format '$(REPO_URI)' "${main[@]}" | grep . || {
        apt-get -qq update && apt-get indextargets --format '$(REPO_URI)' "${main[@]}" | grep .
    } || fail "this machine's apt has no mirror of Debian's main packages; add one to its sources"
}

fill_root() {
    [ -e "$root/.made" ] && return
    local mirrors
    mirrors=$(debian_mirror)
    echo "putting Debian's $suite into $root"
    debootstrap --variant=minbase --include=ca-certificates,python3 "$suite" "$root" "${mirrors%%$'\n'*}" >"$root.log" ||
        { tail -n 5 "$root.log" >&2; fail "debootstrap could not fill $root; remove it and try again"; }
    # A mirror that stands still, as a snapshot does, is good enough here; its signatures are checked.
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/dally"
    apt-config dump | grep -E '^Acquire::https?::' >>"$root/etc/apt/apt.conf.d/dally" || true
    touch "$root/.made"
}

# The tests run there with this machine's Python and packages, so that what differs is Slurm. What that Python is made of
# lies there where it lies here; a Python in /usr stands in for the suite's own.
show_python() {
    local place
    { readlink -f .venv; .venv/bin/python -c 'import sys; print(sys.base_prefix, *sys.path, sep="\n")'; } | sort -u | while read -r place; do
        [ -d "$place" ] && [ "$place" != /usr ] || continue
        show "$place" "$root$place"
    done
    chmod a+x "$root/root"  # jobs of ordinary users run a Python that lies in root's home, too
    place=$(readlink -f .venv/bin/python)
    case $place in /usr/bin/*) show "$place" "$root$place"; show "$place" "$root/usr/bin/python3" ;; esac
}

# libmariadb3 11.8.9, which both suites have, refuses the first query of slurmdbd: this machine's stands in for it.
show_mariadb() {
    local library version
    version=$(chroot "$root" dpkg-query --show --showformat '${source:Version}' libmariadb3)
    case $version in *11.8.9*) ;; *) return 0 ;; esac
    library=$(ldconfig -p | sed -n 's/^.*libmariadb\.so\.3 .*=> //p' | head -n 1)
    [ -z "$library" ] || show "$library" "$root$(chroot "$root" ldconfig -p | sed -n 's/^.*libmariadb\.so\.3 .*=> //p' | head -n 1)"
}

show() {
    if [ -d "$1" ]; then mkdir -p "$2"; else [ -e "$2" ] || touch "$2"; fi
    mount --bind "$1" "$2"
}

# Where mounts and processes are this command's own, so that none stays, however it ends. The suite becomes the root of
# them all, not of one process, as commands that enter namespaces end up there.
run_inside() {
    set -eu
    here=$PWD
    unset TMPDIR
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    show "$here" "$root$here"
    flock "$root.lock" chroot "$root" env --chdir="$here" bash -c ". scripts/setup.sh; install_debian $packages"
    show_python
    show_mariadb
    cd "$root"
    pivot_root . .
    umount --lazy .
    cd "$here"
    .venv/bin/python -c 'import ctypes, lzma, sqlite3, ssl' ||
        fail "this machine's Python does not run in Debian's $suite; an older suite than this machine's will not do"
    exec "$@"
}

# In a worktree .venv may be a link to another tree's, in which Dally is that tree: it is left as it is.
if [ -L .venv ]; then export PYTHONPATH=$PWD; else install_dally "$test_extras"; fi
(flock 9 && fill_root) 9>"$root.lock"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
export root suite packages="$slurm_packages $accounting_packages $network_packages"
exec unshare --mount --pid --fork --kill-child bash -c "$(declare -f fail show show_python show_mariadb run_inside); run_inside \"\$@\"" - "$@"
