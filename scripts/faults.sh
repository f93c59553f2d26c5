#!/usr/bin/env bash
# The compressed cache over devices that do one thing wrong in a hundred jobs (cli/tests/faulty.rs), under load and
# under valgrind, for so many seconds a kind of fault. Fails where a value is wrong, a request is lost, memory is used
# that is not there or is never given back.
# Usage: scripts/faults.sh [SECONDS]      10 if not given
set -euo pipefail
cd "$(dirname "$0")/.."

built=$(cargo test -p cli --test faulty --no-run 2>&1) || {
  echo "$built" >&2
  exit 1
}
tests=$(sed -n 's/.*Executable.*(\(.*\))/\1/p' <<<"$built")
REBATE_FAULTS_S=${1:-10} scripts/valgrind.py "$tests" --test-threads=1 --nocapture
