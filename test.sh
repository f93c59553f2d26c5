#!/usr/bin/env bash
# Installs what is missing and runs every check: format, lints, documentation, tests, and each benchmark in its smallest
# form. It needs no accelerator, and two cores.
set -euo pipefail
cd "$(dirname "$0")"
scripts/setup.sh test

# The same cases in every run: a refusal then tells of the change, and not of the draw. Without it they are others.
export PROPTEST_RNG_SEED=2026

# Nothing is built twice here, so what incremental builds need is not written. Line tables take up to a quarter of the
# time in which a crate compiles (server), and a panic names its line without them.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

step "format, and tables that agree with their JSON"
cargo fmt --all --check
python3 -m doctest scripts/tables.py
scripts/tables.py --check
step "the binary and the tests, with lints and documentation"
# In one build, or all crates are compiled two times more. No number of this run is recorded.
export RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/checked_rustc" CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
cargo build --workspace --all-targets
step "dependencies: licenses, sources, second versions"
scripts/deny
export REBATE_BIN="$PWD/target/debug/rebate" REBATE_BINARY="$PWD/target/debug/rebate"
step "tests"
REBATE_THRIFT_REQUIRED=1 scripts/run_tests.py
step "packages, chart and monitoring"
deploy/check.sh "$REBATE_BIN"
step "the site, and the commands of its guides"
scripts/site --rebate "$REBATE_BIN"
# 3: this machine allows no network namespaces.
scripts/run_blocks.py "$REBATE_BIN" || [ $? = 3 ]
step "DPDK's software devices, and the Python package"
# Python's packages are fetched while the driver compiles. A process group of its own ends with this script.
mkdir -p target/tests
REBATE_PYTHON_LIBRARY=target/debug/lib_rebate.so setsid python/test.sh >target/tests/python.log 2>&1 &
python=$!
trap 'kill -- "-$python" 2>/dev/null || :' EXIT
# Of the whole workspace, so that nothing but the driver is built again.
REBATE_DPDK_REQUIRED=1 cargo test --workspace --features drivers/dpdk --test dpdk --test golden
wait "$python" || { cat target/tests/python.log; exit 1; }
tail -n 4 target/tests/python.log
step "benchmarks, smallest form"
# They measure nothing here, and wait most of the time, so several share the cores. The longest is among the first.
find bench -maxdepth 1 -name '*.py' ! -name '_*' ! -name harness.py | sort -r |
  xargs -P 5 -I{} sh -c 'python3 {} --quick >/dev/null && echo {}'
