# Sourced by the other scripts: configuring, building and testing with a preset, from the root of
# the source tree.
# shellcheck shell=bash

# A clone elsewhere compiles to the same objects: let ccache see it.
export CCACHE_BASEDIR="${PWD}" CCACHE_NOHASHDIR=1

# build PRESET [TARGET...]: everything when no target is named.
build() {
  local preset="$1"
  shift
  cmake --preset "${preset}" &&
    cmake --build --preset "${preset}" --parallel "$(nproc)" ${@:+--target "$@"}
}

# run_ctest PRESET REPORT [CTEST_OPTION...]: one tier; a failed test is for the summary to tell.
run_ctest() {
  local preset="$1" report="$2"
  shift 2
  rm -f "${report}"
  ctest --preset "${preset}" --parallel "$(nproc)" --output-junit "${report}" "$@" || true
}
