#!/usr/bin/env bash
# Measures speed: one JSON object a line. Names: philly, jobs, cluster; none: all. Say --help for more.
. "$(dirname "$0")/setup.sh"
install_dally analysis >&2
exec .venv/bin/python -m simulator.bench "$@"
