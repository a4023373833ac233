#!/usr/bin/env bash
# Writes requirements/: versions and hashes of what a controller's environment holds, and of what builds Dally's wheel.
# Run it with the oldest Python that Dally supports, after a change of dependencies and before a release; `--upgrade`
# takes the newest versions that pyproject.toml allows.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder" && "$folder/bin/pip" install --quiet --disable-pip-version-check "pip-tools>=7.4,<8"
lock() {
    "$folder/bin/pip-compile" --quiet --generate-hashes --strip-extras --no-header --no-annotate --no-emit-index-url \
        --no-emit-trusted-host --no-emit-find-links "$@" pyproject.toml
}
lock --output-file requirements/controller.txt "$@"
lock --only-build-deps --build-deps-for wheel --output-file requirements/build.txt "$@"
