#!/usr/bin/env bash
# Installs what building and testing needs on a Debian-like machine; what is there already is left alone.
# Usage: scripts/setup.sh build | test | release
set -euo pipefail

build_packages=(build-essential nasm autoconf automake libtool)
test_packages=(memcached libmemcached-tools libmemcached-dev nutcracker python3-venv python3-thrift thrift-compiler libthrift-dev libboost-dev chromium pkg-config libdpdk-dev valgrind zstd lz4 netcat-openbsd)
# What the matrix of memcached clients runs (tests/clients).
test_packages+=(php-cli php-memcached php-memcache ruby ruby-dalli libcache-memcached-fast-perl sasl2-bin libsasl2-modules libssl-dev)
# What deploy/check.sh runs; it skips what is not there.
test_packages+=(shellcheck)
# What scripts/release and deploy/check.sh run.
release_packages=(binutils lintian memcached prometheus shellcheck skopeo umoci python3-yaml xz-utils)
# A command may come from elsewhere, and then its package is not needed. Debian's nodejs would even replace another one.
test_commands=(node:nodejs npm:npm javac:default-jdk-headless mvn:maven go:golang-go)

missing() {
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

want=("${build_packages[@]}")
if [ "${1:-build}" = test ]; then
  want+=("${test_packages[@]}")
  for entry in "${test_commands[@]}"; do
    command -v "${entry%%:*}" >/dev/null || want+=("${entry#*:}")
  done
fi
[ "${1:-build}" = release ] && want+=("${release_packages[@]}")
# memcached makes the demo more real; without it the demo uses the embedded store.
[ "${1:-build}" = build ] && want+=(memcached)

mapfile -t absent < <(missing "${want[@]}")
if [ "${#absent[@]}" -gt 0 ]; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  echo "installing: ${absent[*]}" >&2
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq -o DPkg::Lock::Timeout=300 "${absent[@]}" >/dev/null
fi

if ! command -v cargo >/dev/null; then
  echo "Rust is missing: install it with rustup (https://rustup.rs), 1.95 or later, and run this again" >&2
  exit 1
fi

if [ "${1:-build}" = release ]; then
  if ! command -v go >/dev/null; then
    echo "Go is missing: install 1.25 or later (Debian 12's is too old) and run this again" >&2
    exit 1
  fi
  PATH="$PATH:${GOBIN:-$HOME/go/bin}"
  command -v nfpm >/dev/null || go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
  command -v helm >/dev/null || go install helm.sh/helm/v3/cmd/helm@v3.22.0
  PATH="$PATH:$HOME/.local/bin"
  pip_install() { python3 -m pip install --user --break-system-packages --quiet "$1"; }
  python3 -c 'import kubernetes_validate' 2>/dev/null || pip_install kubernetes-validate
  command -v maturin >/dev/null || pip_install 'maturin>=1.9,<2'
fi
