#!/usr/bin/env bash
# The wheel, as a stranger gets it: built, installed in a clean environment outside of the checkout, tried from "/".
# usage: tests/smoke/smoke.sh PYTHON     (one that has the build group installed)
set -euo pipefail

python=$(realpath -s "$1")
checkout=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/gpuagent-smoke.XXXXXX")
trap 'rm -rf "$folder"' EXIT

echo 'smoke: building the wheel ...'
cd "$checkout"
"$python" -m build --wheel --no-isolation --outdir "$folder/dist" . >"$folder/build.log" 2>&1 \
  || { cat "$folder/build.log"; exit 1; }

echo 'smoke: installing it in a clean environment ...'
# The lock as constraints: the releases that are tested, but only what the wheel itself asks for.
sed -n 's/^\([a-z0-9][^\\]*\) \\$/\1/p' requirements.lock >"$folder/constraints.txt"
"$python" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$folder/constraints.txt" "$folder"/dist/*.whl
"$folder/venv/bin/python" -m pip check

cp tests/smoke/smoke.py "$folder/"
cd /
env -u PYTHONPATH "$folder/venv/bin/python" "$folder/smoke.py"
