#!/usr/bin/env bash
# Measures speed, one JSON object a line, of the groups named (none: all), or of slurm. Say --help for more.
. "$(dirname "$0")/setup.sh"
install_dally analysis >&2
if [ "${1-}" = slurm ]; then
    shift
    install_debian $slurm_packages >&2
    exec .venv/bin/python -m analysis.studies.slurm_bench "$@"
fi
exec .venv/bin/python -m analysis.studies.simulator_speed "$@"
