#!/usr/bin/env bash
# The unit tests of what decides and accounts (no FFI), interpreted by Miri, which finds undefined behaviour, data races
# and leaks that a run does not show. Needs a nightly toolchain with the component miri:
#   rustup toolchain install nightly --component miri,rust-src
# Tests that call C, look at the machine's clock or try thousands of cases are left out of it where they are written
# (`cfg_attr(miri, ignore)`, `not(miri)`). Builds in target/miri; some minutes.
# Usage: scripts/miri.sh [CRATE]...      units policy runtime if not given
set -euo pipefail
cd "$(dirname "$0")/.."

# Else Miri errs on purpose in the last digits of functions that need not be exact.
export MIRIFLAGS="-Zmiri-deterministic-floats ${MIRIFLAGS:-}"
crates=("$@")
[ ${#crates[@]} -gt 0 ] || crates=(units policy runtime)
for crate in "${crates[@]}"; do
  # The trace executor's tests run codecs and ciphers in C.
  cargo +nightly miri test -p "$crate" --lib -- --skip trace::
done
