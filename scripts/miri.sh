#!/usr/bin/env bash
# The unit tests of what decides and accounts (no FFI), and of the mailbox between threads, interpreted by Miri, which
# finds undefined behaviour, data races and leaks that a run does not show. Needs a nightly toolchain with Miri:
#   rustup toolchain install nightly --component miri,rust-src
# Tests that call C, look at the machine's clock or try thousands of cases are left out of it where they are written
# (`cfg_attr(miri, ignore)`, `not(miri)`). Builds in target/miri; some minutes.
# Usage: scripts/miri.sh [CRATE]...      units, policy, runtime and the mailbox if not given
set -euo pipefail
cd "$(dirname "$0")/.."

# Else Miri errs on purpose in the last digits of functions that need not be exact.
export MIRIFLAGS="-Zmiri-deterministic-floats ${MIRIFLAGS:-}"
crates=("$@")
if [ ${#crates[@]} -eq 0 ]; then
  crates=(units policy runtime)
  # What else is in this crate calls C.
  cargo +nightly miri test -p drivers --lib mailbox
fi
for crate in "${crates[@]}"; do
  # The trace executor's tests run codecs and ciphers in C.
  cargo +nightly miri test -p "$crate" --lib -- --skip trace::
done
