#!/usr/bin/env bash
# run.sh BIN_DIR TEST NEED...: runs TEST (a file beside this one) on the build in BIN_DIR with what
# external_software.sh provides for each NEED. Exits with 77 where that can't be had.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export SCANSERVE_BIN_DIR="$1"
test="$2"
shift 2

PYTHON=""
for need in "$@"; do
  provided="$("${here}/../external_software.sh" "${need}")"
  while IFS='=' read -r name value; do
    export "${name}=${value}"
  done <<<"${provided}"
done
# A proxy of the environment is not for loopback.
export no_proxy=127.0.0.1 NO_PROXY=127.0.0.1 PYTHONDONTWRITEBYTECODE=1
exec "${PYTHON:-python3}" "${here}/${test}"
