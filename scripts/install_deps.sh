#!/usr/bin/env bash
# Installs the distribution packages that scanserve is built and tested with
# (Debian 12, Ubuntu 24.04). Does nothing where all are there; needs root or sudo otherwise.
# With --dev: also what scripts/format.sh needs.
set -euo pipefail

packages=(
  # Build
  build-essential
  ccache
  cmake
  git
  ninja-build
  pkg-config
  # Libraries
  libabsl-dev
  libcivetweb-dev
  libcli11-dev
  libgrpc++-dev
  libhwy-dev
  libprotobuf-dev
  libspdlog-dev
  libtbb-dev
  nlohmann-json3-dev
  prometheus-cpp-dev
  protobuf-compiler
  protobuf-compiler-grpc
  # Tests
  libbenchmark-dev
  libgmock-dev
  libgtest-dev
  python3
  python3-venv
)

case "${1-}" in
  "") ;;
  --dev) packages+=(clang-format-14) ;; # one version everywhere: they format differently
  *)
    echo "usage: install_deps.sh [--dev]" >&2
    exit 2
    ;;
esac

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

missing=()
for package in "${packages[@]}"; do
  is_installed "${package}" || missing+=("${package}")
done
if ((${#missing[@]} == 0)); then
  echo "install_deps: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_deps: missing ${missing[*]}; run this script as root, or install sudo" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "install_deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt_get() { "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=600 "$@"; }
apt_get -qq update
apt_get -qq install -y --no-install-recommends "${missing[@]}"
echo "install_deps: done"
