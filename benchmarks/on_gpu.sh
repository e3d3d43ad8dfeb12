#!/usr/bin/env bash
# For a machine with a GPU, Python 3.12, torch and triton, with or without a network: runs the tests
# of the target cuda, a campaign, and every virtual finding that is shipped, on the card.
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

rooms="$(mktemp -d)"
trap 'rm -rf "$rooms"' EXIT
python3 -m venv --system-site-packages "$rooms/venv" || exit 2
python="$rooms/venv/bin/python"
if [ "$wheels" = - ]; then
  "$python" -m pip install -q -c constraints.txt ".[dev]" || exit 2
  "$python" -m pip uninstall -q -y attnfuzz
else
  "$python" -m pip install -q --no-index --no-deps "$wheels"/*.whl || exit 2
fi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

status=0
"$python" -m fuzz.cli targets | tee "$out/targets.txt"

"$python" -m pytest -rs tests/test_device.py tests/test_cuda.py 2>&1 | tee "$out/tests.txt"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1

cp -r corpus/cases "$out/confirmations"
virtual=()
while IFS= read -r case; do
  virtual+=("$(dirname "$case")")
done < <(grep -rlE '^target: (virtual|interpreted)-(sm|gfx)' --include=environment.yaml "$out/confirmations")
if [ "${#virtual[@]}" -gt 0 ]; then
  "$python" -m fuzz.cli replay --target cuda --workers 1 "${virtual[@]}" 2>&1 | tee "$out/replay.txt"
else
  echo "no virtual case is shipped" | tee "$out/replay.txt"
fi

"$python" -m fuzz.cli launch configs/cuda.yaml --minutes "$minutes" --dir "$out/campaign" \
  2>&1 | tee "$out/campaign.txt"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1

{
  echo "# On a GPU"
  echo
  "$python" -c 'import torch, triton; p = torch.cuda.get_device_properties(0); print(f"{p.name}, torch {torch.__version__}, triton {triton.__version__}, {torch.cuda.device_count()} device(s)")'
  for part in targets tests replay; do
    printf '\n## %s\n\n```\n' "$part"
    tail -n 40 "$out/$part.txt"
    printf '```\n'
  done
  printf '\n## campaign of %s minutes\n\n```\n' "$minutes"
  "$python" -m fuzz.cli triage "$out/campaign" 2>&1
  printf '```\n'
} > "$out/report.md"
echo "report: $out/report.md"
exit "$status"
