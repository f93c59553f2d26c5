#!/usr/bin/env bash
# Builds the images rebate:local and rebate-memcached:local from this machine's own files: the release binary,
# memcached, and exactly the shared libraries that they load. No registry is asked. The debug information of the shipped
# binary is kept in target/deploy/rebate.debug.
# Usage: deploy/image.sh        REBATE_BINARY=FILE takes that binary instead of building one.
# Exit codes: 0 built, 1 failed, 3 skipped: no Docker engine runs.
set -euo pipefail
cd "$(dirname "$0")/.."

context=target/deploy/context

fail() {
  echo "image.sh: $1" >&2
  exit 1
}

. deploy/collect.sh

if ! docker info >/dev/null 2>&1; then
  echo "SKIPPED: no Docker engine answers: install one (Debian: apt-get install docker.io" \
    "docker-compose), start it (systemctl start docker, or dockerd as root), and be allowed to" \
    "use it (group docker)" >&2
  exit 3
fi
memcached=$(command -v memcached) ||
  fail "memcached is missing: install it (Debian: apt-get install memcached)"
command -v objcopy >/dev/null ||
  fail "objcopy is missing: install it (Debian: apt-get install binutils)"
if [ -z "${REBATE_BINARY:-}" ]; then
  # The code of a release build, with line tables.
  cargo build --profile profiling -p cli
  REBATE_BINARY=target/profiling/rebate
fi
[ -x "$REBATE_BINARY" ] || fail "REBATE_BINARY is $REBATE_BINARY; give an executable file"

rm -rf "$context"
mkdir -p "$context"
collect "$REBATE_BINARY" "$context/rebate" rebate
# Symbols and line tables stay here. gdb and perf find them by the link, beside the program or by its build id.
objcopy --only-keep-debug "$REBATE_BINARY" target/deploy/rebate.debug
deploy/strip.sh "$context/rebate/usr/bin/rebate"
objcopy --add-gnu-debuglink=target/deploy/rebate.debug "$context/rebate/usr/bin/rebate"
collect "$memcached" "$context/memcached" memcached
build=(docker build --quiet --file deploy/Dockerfile)
"${build[@]}" --target rebate --tag rebate:local "$context"
"${build[@]}" --target memcached --tag rebate-memcached:local "$context"
