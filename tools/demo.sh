#!/usr/bin/env bash
# The demonstration: serves the bundled model with two attention groups and two expert devices (five processes with the
# front), lets demo.py send prompts of very different lengths at once, and stops the server as Ctrl-C would.
#   tools/demo.sh BINARY
set -euo pipefail

binary=${1:?usage: tools/demo.sh BINARY, which "make build" leaves in build/release/asap}
tools=$(dirname "${BASH_SOURCE[0]}")
folder=$(mktemp -d)
server=

clean_up() {
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean_up EXIT

fail() {
  echo "demo: $*; the server said:" >&2
  cat "$folder/log" >&2
  exit 1
}

# Succeeds once the command does; fails after about $1 seconds, or when the server is gone.
wait_for() {
  local tries=$(($1 * 10))
  shift
  while ! "$@"; do
    kill -0 "$server" 2>/dev/null && [ "$tries" -gt 0 ] || return 1
    tries=$((tries - 1))
    sleep 0.1
  done
}
is_gone() { ! kill -0 "$server" 2>/dev/null; }

"$binary" serve --data-parallel-size 2 --tensor-parallel-size 1 --num-moe-ranks 2 \
  --port 0 --port-file "$folder/port" >"$folder/log" 2>&1 &
server=$!
wait_for 60 test -s "$folder/port" || fail "the server did not open its port"
python3 "$tools/demo.py" "$(cat "$folder/port")" || fail "the requests did not all succeed"

kill -INT "$server"
wait_for 5 is_gone || fail "the server did not stop within 5 s of SIGINT"
status=0
wait "$server" || status=$?
server=
[ "$status" -eq 0 ] || fail "the server ended with status $status"
