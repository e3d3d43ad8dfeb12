#!/usr/bin/env bash
# Puts what attnfuzz needs beside torch and triton into a folder, as wheels for Python 3.12 on Linux
# x86-64, for a machine without a network (see on_gpu.sh).
#
#   benchmarks/wheels.sh FOLDER [NAME…]
#
# NAMEs are packages that are there already and are left out.
# Ray's wheel comes without ray/jars, which only Java programs use: 48 MB instead of 73.
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: benchmarks/wheels.sh FOLDER [NAME…]" >&2; exit 2; }
here="$(cd "$(dirname "$0")/.." && pwd)"
mkdir -p "$1"
platforms=()
for tag in manylinux1 manylinux2010 manylinux2014 manylinux_2_{5,12,17,24,27,28,31,34,35}; do
  platforms+=(--platform "${tag}_x86_64")
done
python3 - "$here/pyproject.toml" > "$1/requirements.txt" <<'PYTHON'
import sys, tomllib

project = tomllib.load(open(sys.argv[1], "rb"))["project"]
wanted = [*project["dependencies"], "pytest>=8"]
print("\n".join(one for one in wanted if not one.startswith("torch")))
PYTHON
grep -v '^torch' "$here/constraints.txt" > "$1/constraints.txt"
python3 -m pip download -q --only-binary=:all: --python-version 3.12 --implementation cp \
  "${platforms[@]}" -d "$1" -c "$1/constraints.txt" -r "$1/requirements.txt"
for name in "${@:2}"; do
  rm -f "$1/${name//-/_}"-[0-9]*.whl
done
zip -qd "$1"/ray-*.whl 'ray/jars/*'
du -sh "$1"
