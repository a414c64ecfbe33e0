#!/usr/bin/env bash
# Installs what is missing, builds everything and runs the default tests. Ends with the line
# `N passed, N failed, N skipped`; exits with 1 where a test failed.
#   --preset NAME   build preset (release)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/build.sh

preset=release
while (($# > 0)); do
  case "$1" in
    --preset)
      preset="$2"
      shift 2
      ;;
    *)
      echo "usage: test.sh [--preset NAME]" >&2
      exit 2
      ;;
  esac
done

scripts/install_deps.sh
build "${preset}"
report="build/${preset}/ctest.xml"
run_ctest "${preset}" "${PWD}/${report}" --label-regex '^(unit|core|integration|interop)$'
python3 scripts/ctest_summary.py "${report}"
