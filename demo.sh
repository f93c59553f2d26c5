#!/usr/bin/env bash
# Installs what is missing, builds, and compares compression off and on in the same memory. Arguments go to `rebate demo`.
set -euo pipefail
cd "$(dirname "$0")"
scripts/setup.sh build
cargo build --release -p cli
exec target/release/rebate demo "$@"
