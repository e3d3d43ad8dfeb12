#!/usr/bin/env bash
# For a machine with a GPU, Python 3.12, torch and triton, with or without a network: runs the tests
# of the target cuda, a campaign, and every finding of a card that is shipped, virtual or not.
#
#   benchmarks/on_gpu.sh OUT [WHEELS] [MINUTES]
#
# OUT      a folder: tests.txt, replay.txt, confirmations, the campaign with its corpus, report.md
# WHEELS   a folder of the wheels that are missing there, made by wheels.sh; "-" asks pip's index
# MINUTES  of the campaign; 4
#
# Ends with 0 when the tests pass and the campaign ran, whatever it found.
set -uo pipefail

[ $# -ge 1 ] || { echo "usage: benchmarks/on_gpu.sh OUT [WHEELS] [MINUTES]" >&2; exit 2; }
mkdir -p "$1" || exit 2
out="$(cd "$1" && pwd)" wheels="${2:--}" minutes="${3:-4}"
[ "$wheels" = - ] || wheels="$(cd "$wheels" && pwd)" || exit 2
cd "$(dirname "$0")/.." || exit 2
trap 'exit 143' TERM INT

rooms="$(mktemp -d)"
trap 'report; rm -rf "$rooms"' EXIT

# Written however this ends, a deadline's SIGTERM included.
report() {
  [ -n "${python:-}" ] || return
  {
    echo "# On a GPU"
    echo
    "$python" -c 'import torch, triton; p = torch.cuda.get_device_properties(0); print(f"{p.name}, torch {torch.__version__}, triton {triton.__version__}, {torch.cuda.device_count()} device(s)")'
    for part in targets tests replay campaign; do
      printf '\n## %s\n\n```\n' "$part"
      tail -n 40 "$out/$part.txt" 2>/dev/null || echo "not come to"
      printf '```\n'
    done
    printf '\n## what the campaign found\n\n```\n'
    "$python" -m attnfuzz triage "$out/campaign" 2>&1
    printf '```\n'
  } > "$out/report.md"
  echo "report: $out/report.md"
}

python3 -m venv --system-site-packages "$rooms/venv" || exit 2
python="$rooms/venv/bin/python"
# Where python3 is itself of a virtual environment, that one's packages are not the system's.
where='import sysconfig; print(sysconfig.get_path("purelib"))'
python3 -c "$where" > "$("$python" -c "$where")/outer.pth"
if [ "$wheels" = - ]; then
  grep -v '^torch' constraints.txt > "$rooms/constraints.txt"  # the torch that is there is tested
  "$python" -m pip install -q -c "$rooms/constraints.txt" ".[dev]" || exit 2
  "$python" -m pip uninstall -q -y attnfuzz
else
  "$python" -m pip install -q --no-index --no-deps "$wheels"/*.whl || exit 2
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

status=0
"$python" -m attnfuzz targets | tee "$out/targets.txt"

"$python" -m pytest -rs tests/test_device.py tests/test_cuda.py 2>&1 | tee "$out/tests.txt"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1

cp -r corpus/cases "$out/confirmations"
virtual=()
while IFS= read -r case; do
  virtual+=("$(dirname "$case")")
done < <(grep -rlE '^target: (cuda|(virtual|interpreted)-(sm|gfx))' --include=environment.yaml "$out/confirmations")
if [ "${#virtual[@]}" -gt 0 ]; then
  "$python" -m attnfuzz replay --target cuda --workers 4 "${virtual[@]}" 2>&1 | tee "$out/replay.txt"
else
  echo "no case of a card is shipped" | tee "$out/replay.txt"
fi

"$python" -m attnfuzz launch configs/cuda.yaml --minutes "$minutes" --dir "$out/campaign" \
  2>&1 | tee "$out/campaign.txt"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1

exit "$status"
