#!/usr/bin/env bash
# Provides other people's software, unmodified, for tests and benches: once, below .cache/ in the
# source tree. Prints NAME=VALUE lines for what was asked for:
#   external_software.sh clients        PYTHON=<interpreter with interop/requirements.txt>
#   external_software.sh peers          PYTHON=<interpreter with bench/peers/requirements.txt>
#   external_software.sh perf_analyzer  PERF_ANALYZER=<binary>, PERF_ANALYZER_LIBRARY_PATH=<folders>
#   external_software.sh promtool       PROMTOOL=<binary>
# Exits with 77 and the reason where a registry can't be reached.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="$(dirname "${here}")/.cache"

# cached NAME KEY COMMAND...: runs COMMAND FOLDER once for each KEY and sets `folder`. Tests run
# side by side, so a lock is held; a folder counts once its mark is there.
cached() {
  local name="$1" key="$2"
  shift 2
  folder="${cache}/${name}-$(printf '%s' "${key}" | sha256sum | cut -c1-12)"
  mkdir -p "${cache}"
  exec 9>"${folder}.lock"
  flock 9
  if [[ ! -e "${folder}/.complete" ]]; then
    rm -rf "${folder}"
    "$@" "${folder}" >&2
    touch "${folder}/.complete"
  fi
  exec 9>&-
}

# fetch COMMAND...: runs a package client; a registry out of reach makes a skip, all else fails.
fetch() {
  local log
  log="$(mktemp)"
  if "$@" >"${log}" 2>&1; then
    rm "${log}"
    return
  fi
  cat "${log}" >&2
  if grep -qiE 'connection|resolv|timed? ?out|unreachable' "${log}"; then
    echo "SKIP: the package registry can't be reached ($1 $2)" >&2
    rm "${log}"
    exit 77
  fi
  rm "${log}"
  exit 1
}

# make_python REQUIREMENTS [PIP_OPTION...] FOLDER
make_python() {
  local target="${!#}"
  python3 -m venv "${target}"
  fetch "${target}/bin/python" -m pip install --disable-pip-version-check -r "${@:1:$#-1}"
}

provide_python() {
  cached "venv-$1" "$(python3 --version) $(cat "$2")" make_python "$2"
  echo "PYTHON=${folder}/bin/python"
}

# Unpacks a distribution package without installing it (`prometheus` would start a server).
make_unpacked() {
  mkdir -p "$2"
  cd "$2"
  fetch apt-get download "$1"
  dpkg-deb --extract ./*.deb .
  rm ./*.deb
}

case "${1-}" in
  clients) provide_python clients "${here}/interop/requirements.txt" ;;
  peers) provide_python peers "${here}/bench/peers/requirements.txt" ;;
  perf_analyzer)
    requirements="${here}/interop/perf_analyzer_requirements.txt"
    glibc="$(ldd --version | sed -n '1s/.* //p')"
    if [[ "$(printf '2.38\n%s\n' "${glibc}" | sort -V | head -n 1)" == 2.38 ]]; then
      requirements="${here}/interop/perf_analyzer_requirements_glibc238.txt"
    fi
    cached perf-analyzer "$(cat "${requirements}")" make_python "${requirements}" --no-deps
    binary="${folder}/bin/perf_analyzer"
    libraries="$(find "${folder}" -name 'libcudart.so*' -printf '%h:' -quit)"
    if ldd "${binary}" 2>/dev/null | grep 'libb64.*not found' >/dev/null; then
      cached libb64 libb64-0d make_unpacked libb64-0d
      libraries+="$(find "${folder}" -name 'libb64.so*' -printf '%h' -quit)"
    fi
    echo "PERF_ANALYZER=${binary}"
    echo "PERF_ANALYZER_LIBRARY_PATH=${libraries}"
    ;;
  promtool)
    if ! binary="$(command -v promtool)"; then
      cached promtool prometheus make_unpacked prometheus
      binary="${folder}/usr/bin/promtool"
    fi
    echo "PROMTOOL=${binary}"
    ;;
  *)
    echo "usage: external_software.sh clients|peers|perf_analyzer|promtool" >&2
    exit 2
    ;;
esac
