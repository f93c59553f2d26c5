#!/usr/bin/env bash
# Tests the Python package on the extension that `cargo build` makes (`pip install ./python` makes the one to use), with
# pandas, polars, pymemcache and a local Ray cluster in an environment of its own, and checks its types. The client's tests
# need the program (REBATE_BIN, or target/debug/rebate) and memcached. Arguments go to unittest.
# REBATE_PYTHON_LIBRARY names an extension that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
library=${REBATE_PYTHON_LIBRARY:-}
if [ -z "$library" ]; then
  cargo build --quiet -p rebate-python
  library=target/debug/lib_rebate.so
fi
environment=target/python
# Fixed, so that a new release of one does not fail who changed nothing.
packages=(mypy==2.4.1 matplotlib==3.11.2 pandas==3.1.1 polars==2.1.0 pymemcache==4.0.0 ray==2.60.0)
ready="$environment/$(IFS=_; echo "${packages[*]}")"
if [ ! -e "$ready" ]; then
  python3 -m venv "$environment"
  install() { "$environment/bin/pip" install --quiet "${packages[@]}"; }
  # pip tries again itself where it cannot connect, not where a download is cut off.
  install || { sleep 30 && install; }
  touch "$ready"
fi
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
cp -r python/rebate "$package/"
cp "$library" "$package/rebate/_rebate.abi3.so"
"$environment/bin/mypy" --strict --ignore-missing-imports --cache-dir target/python/types python/rebate
export REBATE_PYTHON_REQUIRED=1 PYTHONPATH="$package"
"$environment/bin/python" python/tests/test_package.py "$@"
"$environment/bin/python" python/tests/test_client.py
