#!/usr/bin/env bash
# Runs every program under a folder whose name matches a pattern, one after the other, each with the same arguments.
#   tools/each.sh FOLDER PATTERN [ARGUMENT ...]
set -euo pipefail

folder=$1 pattern=$2
shift 2
mapfile -t programs < <(find "$folder" -type f -executable -name "$pattern" | sort)
if [ "${#programs[@]}" -eq 0 ]; then
  echo "each: no program under $folder is named $pattern" >&2
  exit 1
fi
for program in "${programs[@]}"; do
  echo "== ${program#"$folder"/} $*"
  "$program" "$@"
done
