#!/usr/bin/env bash
# Builds the images rebate:local and rebate-memcached:local from this machine's own files: the release binary,
# memcached, and exactly the shared libraries that they load. No registry is asked.
# Usage: deploy/image.sh        REBATE_BINARY=FILE takes that binary instead of building one.
# Exit codes: 0 built, 1 failed, 3 skipped: no Docker engine runs.
set -euo pipefail
cd "$(dirname "$0")/.."

context=target/deploy/context

fail() {
  echo "image.sh: $1" >&2
  exit 1
}

# collect FILE ROOT NAME: the program as ROOT/usr/bin/NAME, its libraries and its loader where it looks for them.
collect() {
  install -D "$1" "$2/usr/bin/$3"
  local library
  # A static program loads none, and ldd says so with a failure.
  { ldd "$1" 2>/dev/null || true; } |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' |
    while read -r library; do
      install -D "$library" "$2$library"
    done
}

if ! docker info >/dev/null 2>&1; then
  echo "SKIPPED: no Docker engine answers: install one (Debian: apt-get install docker.io" \
    "docker-compose), start it (systemctl start docker, or dockerd as root), and be allowed to" \
    "use it (group docker)" >&2
  exit 3
fi
memcached=$(command -v memcached) ||
  fail "memcached is missing: install it (Debian: apt-get install memcached)"
if [ -z "${REBATE_BINARY:-}" ]; then
  cargo build --release -p cli
  REBATE_BINARY=target/release/rebate
fi
[ -x "$REBATE_BINARY" ] || fail "REBATE_BINARY is $REBATE_BINARY; give an executable file"

rm -rf "$context"
mkdir -p "$context"
collect "$REBATE_BINARY" "$context/rebate" rebate
collect "$memcached" "$context/memcached" memcached
build=(docker build --quiet --file deploy/Dockerfile)
"${build[@]}" --target rebate --tag rebate:local "$context"
"${build[@]}" --target memcached --tag rebate-memcached:local "$context"
