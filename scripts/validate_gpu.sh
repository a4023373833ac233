#!/usr/bin/env bash
# Tries in under eight minutes all that needs an NVIDIA GPU: validate_gpu.sh [FOLDER], runs/gpu-validation if none
# is named. PYTHON is the interpreter that has torch; DALLY_WHEELS, a folder of wheels of what it lacks.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$([ -x "$root/.venv/bin/python" ] && echo "$root/.venv/bin/python" || echo python3)}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "${DALLY_WHEELS:-}" ]; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" "$DALLY_WHEELS"/*.whl
    export PYTHONPATH="$PYTHONPATH:$site"
fi
"$python" -m profiler.gpu_validation "$@"
