#!/usr/bin/env bash
# Sets everything up and runs every check: style, types, layers, tests, and the built wheel in a fresh environment.
# With `quick`, two minutes of it that need neither root nor Debian packages: style, and the tests that are not slow.
. "$(dirname "$0")/setup.sh"
case "${1-}" in "" | quick) ;; *) fail "'$1' is no kind of test; say nothing for all, or quick" ;; esac
install_dally "$test_extras"
[ "${1-}" = quick ] || install_debian $slurm_packages $accounting_packages $network_packages $browser_packages

step() {
    local what=$1 hint=$2
    shift 2
    printf '== %s\n' "$what"
    "$@" || fail "$what failed; $hint"
}

wheel_works() (
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    .venv/bin/pip wheel --quiet --no-deps --wheel-dir "$folder" . 2>"$folder/log" &&
        python3 -m venv "$folder/venv" &&
        "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$folder"/*.whl 2>"$folder/log" &&
        cd "$folder" &&
        venv/bin/dally simulate --trace dally-batch --cluster dally-256 --profiles dally \
            --policy dally --out run &&
        venv/bin/dally why dally-batch-000000 --run run/dally >why.txt && head -n 3 why.txt &&
        venv/bin/profile-models models >models.txt && head -n 3 models.txt ||
        { cat "$folder/log" >&2; exit 1; }
)

tests_compile() {
    .venv/bin/pytest --collect-only >"$folder/collected" || { tail -n 20 "$folder/collected" >&2; return 1; }
}

types_hold() {
    local checks=$types
    types=
    wait "$checks" && cat "$folder/types" || { cat "$folder/types" >&2; return 1; }
}

# Hundreds of daemons share the machine with each other. What fails beside them and passes alone is told, and is to be mended.
tests_pass() {
    .venv/bin/pytest --numprocesses 6 --dist loadgroup --durations=25 && return
    [ $? = 1 ] || return  # no test failed: pytest could not run them
    printf '== the tests that failed, once more, one after the other\n'
    .venv/bin/pytest --last-failed --last-failed-no-failures none -rA --show-capture=no --maxfail=5 &&
        printf 'the tests above passed alone only: they depend on what else the machine does\n'
}

step "ruff check" "run: .venv/bin/ruff check --fix" .venv/bin/ruff check
step "ruff format" "run: .venv/bin/ruff format" .venv/bin/ruff format --check
if [ "${1-}" = quick ]; then
    step "pytest -m 'not slow'" "run one test alone: .venv/bin/pytest PATH::NAME" .venv/bin/pytest --numprocesses 2 --dist loadgroup -m "not slow"
    exit
fi
folder=$(mktemp -d)
.venv/bin/mypy >"$folder/types" 2>&1 & types=$!  # one core checks types while the other does the next three steps
trap '[ -z "$types" ] || kill "$types" 2>/dev/null || true; rm -rf "$folder"' EXIT
step "import layers" "an import runs up; see pyproject.toml [tool.importlinter]" .venv/bin/lint-imports
step "the wheel in a fresh environment" "see [tool.hatch.build] in pyproject.toml" wheel_works
step "the tests are compiled once, not by six workers" "mend what is named above" tests_compile
step "mypy --strict" "mend the types named above" types_hold
step "pytest" "run one test alone: .venv/bin/pytest PATH::NAME" tests_pass
