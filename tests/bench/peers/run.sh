#!/usr/bin/env bash
# run.sh BIN_DIR [OPTION...]: run.py on the build in BIN_DIR, with the frameworks of
# requirements.txt (about 6 GB, installed once below .cache/).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
bin="$(cd "$1" && pwd)"
shift
provided="$("${here}/../../external_software.sh" peers)"

# What Python needs to be at its best on a small machine: large blocks of memory kept by the C
# library instead of page-faulted in again for each call, and no BLAS kernel forced on it.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export CUDA_VISIBLE_DEVICES="" JAX_PLATFORMS=cpu PYTHONDONTWRITEBYTECODE=1
exec "${provided#PYTHON=}" "${here}/run.py" --bin "${bin}" "$@"
