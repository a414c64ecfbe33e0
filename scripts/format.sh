#!/usr/bin/env bash
# Formats every tracked C++ file. With --check: changes nothing, exits 1 where a file differs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1-}" in
  "") mode=(-i) ;;
  --check) mode=(--dry-run --Werror) ;;
  *)
    echo "usage: format.sh [--check]" >&2
    exit 2
    ;;
esac
git ls-files -z -- '*.cc' '*.h' | xargs -0 --no-run-if-empty clang-format-14 "${mode[@]}"
