#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that ASAP is built from, if any is missing. Idempotent and quiet when nothing is
# to do; docs/dependencies.md says why each package is here.
#
#   tools/setup.sh                what building, testing and the demonstration need
#   tools/setup.sh format         clang-format
#   tools/setup.sh fuzz           clang, whose libFuzzer drives the fuzz targets
#   tools/setup.sh transformers   what `make test-transformers` makes its virtual environment with
set -euo pipefail

packages_for() {
  case "$1" in
    build)
      echo g++ cmake make ninja-build pkg-config python3 xz-utils binutils \
        libexpected-dev nlohmann-json3-dev libcli11-dev libboost-dev libonig-dev libutf8proc-dev \
        libspdlog-dev libfmt-dev prometheus-cpp-dev libtomlplusplus-dev libssl-dev libhwloc-dev \
        libgtest-dev libgmock-dev libbenchmark-dev gnuplot-nox
      ;;
    format) echo clang-format ;;
    fuzz) echo clang ;;
    transformers) echo python3-venv ;;
    *)
      echo "setup: \"$1\" is not a set of packages; use build, format, fuzz or transformers" >&2
      exit 2
      ;;
  esac
}

say() { echo "setup: $*" >&2; }

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

has_candidate() {
  [[ "$(apt-cache policy "$1" 2>/dev/null)" =~ Candidate:\ [^\(] ]]
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "installing packages needs root, and there is no sudo here. As root, run:"
    say "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    exit 1
  fi
}

list=$(packages_for "${1:-build}")
read -ra packages <<<"$list"

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "this system has no apt; only Debian 12 and Ubuntu 24.04 are set up automatically."
  say "If the build fails, install what your system calls: ${packages[*]}"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

say "installing ${missing[*]}"
# The package lists of a fresh machine are empty or old.
as_root apt-get update -qq
for package in "${missing[@]}"; do
  if ! has_candidate "$package"; then
    say "apt knows no package $package. On Ubuntu it is in \"universe\": add-apt-repository universe;"
    say "systems older than Debian 12 or Ubuntu 24.04 do not have all of them."
    exit 1
  fi
done
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
