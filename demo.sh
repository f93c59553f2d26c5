#!/usr/bin/env bash
# Installs what is missing, builds, and runs `rebate demo`, which compares Rebate with memcached. Arguments go to it.
set -euo pipefail
cd "$(dirname "$0")"
scripts/setup.sh build
cargo build --release -p cli
exec target/release/rebate demo "$@"
