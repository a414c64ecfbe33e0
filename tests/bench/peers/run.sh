#!/usr/bin/env bash
# run.sh BIN_DIR [OPTION...]: run.py on the build in BIN_DIR, with the frameworks of
# requirements.txt (about 6 GB, installed once below .cache/).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
bin="$(cd "$1" && pwd)"
shift
provided="$("${here}/../../external_software.sh" peers)"
PYTHONDONTWRITEBYTECODE=1 exec "${provided#PYTHON=}" "${here}/run.py" --bin "${bin}" "$@"
