#!/usr/bin/env bash
# Runs every fuzz target under a folder, one after the other, each from the inputs in tests/fuzz/NAME if there are any. What it
# finds on the way stays in FOLDER/corpus/NAME.
#   tools/fuzz.sh FOLDER [LIBFUZZER ARGUMENT ...]
set -euo pipefail

folder=$1
shift
source=$(cd "$(dirname "$0")/.." && pwd)
mapfile -t programs < <(find "$folder" -type f -executable -name '*_fuzz' | sort)
if [ "${#programs[@]}" -eq 0 ]; then
  echo "fuzz: no program under $folder is named *_fuzz" >&2
  exit 1
fi
for program in "${programs[@]}"; do
  name=$(basename "$program")
  inputs=("$folder/corpus/$name")
  mkdir -p "${inputs[0]}"
  if [ -d "$source/tests/fuzz/$name" ]; then inputs+=("$source/tests/fuzz/$name"); fi
  echo "== $name $*"
  "$program" "$@" "${inputs[@]}"
done
