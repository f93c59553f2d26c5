#!/usr/bin/env bash
# Strips a program in place, and keeps the names of its functions in it, compressed, as gdb's MiniDebugInfo: in the
# section .gnu_debugdata. Profiles of a server need them, and gdb and systemd-coredump read them too. They take a tenth of
# what the symbols take uncompressed.
# Usage: deploy/strip.sh PROGRAM
# Needs binutils and xz. Exit codes: 0 done, 1 failed, 2 bad usage.
set -euo pipefail
export LC_ALL=C
[ $# = 1 ] || { echo "usage: deploy/strip.sh PROGRAM" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm --defined-only --format=posix "$1" | awk '$2 ~ /^[tTwWi]$/ { print $1 }' | sort -u >"$work/functions"
objcopy --strip-all "$1" "$work/program"
if [ -s "$work/functions" ]; then
  objcopy --only-keep-debug "$1" "$work/debug"
  objcopy --strip-all --keep-symbols="$work/functions" --remove-section=.comment "$work/debug" "$work/names"
  # One thread, so that the bytes repeat on every machine.
  xz --format=xz --check=crc32 -9 --threads=1 "$work/names"
  objcopy --add-section .gnu_debugdata="$work/names.xz" "$work/program"
fi
# The file keeps its owner and its mode.
cat "$work/program" >"$1"
