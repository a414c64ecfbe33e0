#!/usr/bin/env bash
# The main job, on this machine: installs what is missing, builds, starts a server on loopback,
# calls selective_scan forward and backward, checks every number against float64 and prints what
# it measured. Stops the server that it started. Exits as the demo does.
#   --bin DIR   use the binaries in DIR: installs and builds nothing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/build.sh

bin=""
while (($# > 0)); do
  case "$1" in
    --bin)
      bin="$2"
      shift 2
      ;;
    *)
      echo "usage: demo.sh [--bin DIR]" >&2
      exit 2
      ;;
  esac
done

if [[ -z "${bin}" ]]; then
  scripts/install_deps.sh
  build release scanserved scanserve_demo scanctl
  bin=build/release/bin
fi

work="$(mktemp -d)"
server=""
stop() {
  if [[ -n "${server}" ]]; then
    kill -TERM "${server}" 2>/dev/null || true
    wait "${server}" || true
  fi
  rm -rf "${work}"
}
trap stop EXIT

"${bin}/scanserved" --grpc-address=127.0.0.1 --grpc-port=0 --metrics-address=127.0.0.1 \
  --metrics-port=0 --port-file="${work}/ports" >"${work}/log" 2>&1 &
server=$!

for ((tries = 0; tries < 300; ++tries)); do
  if grep -q '^metrics=' "${work}/ports" 2>/dev/null; then break; fi
  if ! kill -0 "${server}" 2>/dev/null; then break; fi
  sleep 0.1
done
if ! grep -q '^metrics=' "${work}/ports" 2>/dev/null; then
  echo "demo: the server did not start" >&2
  cat "${work}/log" >&2
  exit 1
fi
grpc_port="$(sed -n 's/^grpc=//p' "${work}/ports")"
metrics_port="$(sed -n 's/^metrics=//p' "${work}/ports")"

"${bin}/scanserve_demo" --server="127.0.0.1:${grpc_port}" \
  --metrics="127.0.0.1:${metrics_port}"
