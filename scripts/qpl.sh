#!/usr/bin/env bash
# Builds Intel QPL's shared library from a checkout, outside of this repository, and prints the line that tells Rebate
# where it is. Nothing is downloaded: get the sources of QPL 1.x first, and nasm, cmake and a C++ compiler.
# Usage: scripts/qpl.sh CHECKOUT BUILD_DIRECTORY
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: scripts/qpl.sh CHECKOUT BUILD_DIRECTORY" >&2
  exit 2
fi
checkout=$1
if [ ! -f "$checkout/include/qpl/qpl.h" ]; then
  echo "$checkout is not a checkout of Intel QPL: it has no include/qpl/qpl.h" >&2
  exit 1
fi
for tool in cmake nasm c++; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool is missing (Debian: cmake nasm g++)" >&2
    exit 1
  fi
done

repository=$(realpath "$(dirname "$0")/..")
build=$(realpath -m "$2")
case "$build/" in
  "$repository"/*)
    echo "$build is inside of the repository; give a directory outside of it" >&2
    exit 1
    ;;
esac
mkdir -p "$build"

# Its examples, tests and benchmarks need submodules; the library needs none.
cmake -S "$checkout" -B "$build" -DCMAKE_BUILD_TYPE=Release -DQPL_LIBRARY_TYPE=SHARED \
  -DQPL_BUILD_EXAMPLES=OFF -DQPL_BUILD_TESTS=OFF >&2
cmake --build "$build" --parallel "${QPL_JOBS:-$(nproc)}" >&2

library=$build/sources/libqpl.so
if [ ! -e "$library" ]; then
  echo "the build made no $library" >&2
  exit 1
fi
printf 'export REBATE_QPL_LIBRARY=%q\n' "$library"
