#!/usr/bin/env bash
# Writes an OCI image with one program and the libraries that it loads, without an engine and without a registry.
# Usage: deploy/oci.sh PROGRAM TAG FILE.tar [MEMCACHED]
#   MEMCACHED   makes the image of tools: it has this program too, for comparisons, prints its help without a command,
#               and writes to /tmp, where something writable has to be mounted
# SOURCE_DATE_EPOCH sets the dates in it, so that the bytes repeat.
# Needs umoci (Debian: apt-get install umoci). Exit codes: 0 written, 1 failed, 2 bad usage, 3 skipped: no umoci.
set -euo pipefail
export LC_ALL=C TZ=UTC
# The image's user reads the files, which are root's.
umask 022
case $# in
  3) name=rebate command=serve directory=/ ;;
  4) name=rebate-tools command=--help directory=/tmp ;;
  *) echo "usage: deploy/oci.sh PROGRAM TAG FILE.tar [MEMCACHED]" >&2; exit 2 ;;
esac
program=$(realpath "$1") tag=$2 file=$(realpath -m "$3") memcached=${4:-}
cd "$(dirname "$0")/.."
command -v umoci >/dev/null || { echo "SKIPPED: umoci is missing: apt-get install umoci" >&2; exit 3; }
. deploy/collect.sh

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
created=$(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
collect "$program" "$work/root" rebate
deploy/strip.sh "$work/root/usr/bin/rebate"
if [ -n "$memcached" ]; then
  collect "$memcached" "$work/root" memcached
  # What is mounted there gets its rights.
  install -d -m 1777 "$work/root/tmp"
fi
install -D -m 644 LICENSE "$work/root/usr/share/doc/rebate/LICENSE"
scripts/libraries.py licences "$(rustc -vV | sed -n 's/^host: //p')" >"$work/root/usr/share/doc/rebate/THIRD-PARTY-LICENSES"
find "$work/root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

case $(uname -m) in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) architecture=$(uname -m) ;; esac
image="$work/image:$tag"
umoci init --layout "$work/image"
umoci new --image "$image"
for folder in "$work"/root/*; do
  umoci insert --image "$image" --uid-map "0:$(id -u):1" --gid-map "0:$(id -g):1" --rootless \
    --history.created "$created" "$folder" "/$(basename "$folder")"
done
umoci config --image "$image" --os linux --architecture "$architecture" --created "$created" \
  --history.created "$created" --config.user 10001:10001 --config.entrypoint /usr/bin/rebate \
  --config.cmd="$command" --config.workingdir "$directory" \
  --config.label org.opencontainers.image.title="$name" --config.label "org.opencontainers.image.version=$tag" \
  --config.label org.opencontainers.image.licenses=Apache-2.0
umoci gc --layout "$work/image"
tar -C "$work/image" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf "$file" .
