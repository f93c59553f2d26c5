#!/usr/bin/env bash
# Installs a .deb of scripts/release in a clean Debian 12 with systemd and checks what an administrator would: the time to
# the first get, the service's user and unit, an upgrade under load, and the removal. No registry is asked: the image is
# made by debootstrap and kept as rebate-test-debian12.
# Usage: deploy/package/test.sh FILE.deb
# Needs root, a Docker engine and debootstrap (Debian: apt-get install docker.io debootstrap).
# Exit codes: 0 passed, 1 failed, 2 bad usage, 3 skipped: no Docker engine runs.
set -euo pipefail

if [ $# != 1 ] || [ ! -f "$1" ]; then
  echo "usage: deploy/package/test.sh FILE.deb" >&2
  exit 2
fi
docker info >/dev/null 2>&1 || { echo "SKIPPED: no Docker engine answers" >&2; exit 3; }

fail() {
  echo "FAILED: $1" >&2
  inside journalctl --no-pager -n 40 -u rebate.service -u rebate.socket >&2 || true
  exit 1
}

image=rebate-test-debian12
if ! docker image inspect "$image" >/dev/null 2>&1; then
  root=$(mktemp -d)
  debootstrap --variant=minbase --include=systemd,systemd-sysv,adduser bookworm "$root" \
    ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >&2
  tar -C "$root" -c . | docker import - "$image" >&2
  rm -rf "$root"
fi

# systemd needs its own control groups and a few mounts; nothing of the host is shared.
machine=$(docker run --detach --cap-add SYS_ADMIN --security-opt seccomp=unconfined --cgroupns=private \
  --network none --tmpfs /run --tmpfs /tmp --entrypoint /sbin/init "$image")
trap 'docker rm --force "$machine" >/dev/null' EXIT
inside() { docker exec -i "$machine" "$@"; }
for _ in $(seq 60); do
  state=$(inside systemctl is-system-running 2>/dev/null || true)
  case "$state" in running | degraded) break ;; *) sleep 1 ;; esac
done
[[ "$state" =~ running|degraded ]] || fail "systemd does not come up: $state"

# The scripts in quotes run inside.
# shellcheck disable=SC2016
# ask LINES: sends lines of memcached's protocol and prints the answer up to its END or STORED.
ask='exec 3<>/dev/tcp/127.0.0.1/11211 || exit 1
printf "$1" >&3
while IFS= read -r -t 10 line <&3; do
  printf "%s\n" "${line%$'"'"'\r'"'"'}"
  case "$line" in END* | STORED* | *ERROR*) exit 0 ;; esac
done
exit 1'
ask() { inside bash -c "$ask" ask "$1"; }

docker cp "$1" "$machine:/root/rebate.deb" >/dev/null
begun=$(date +%s.%N)
inside dpkg -i /root/rebate.deb >&2
ask 'get nothing\r\n' >/dev/null || fail "no get was answered after the installation"
echo "from the installation to the first get: $(echo "$(date +%s.%N) - $begun" | bc) s"

[ "$(inside systemctl show -P User rebate.service)" = rebate ] || fail "the service's user"
inside systemctl is-active --quiet rebate.service || fail "rebate.service is not active"
inside systemctl is-enabled --quiet rebate.socket rebate.service || fail "a unit is not enabled"
pid=$(inside systemctl show -P MainPID rebate.service)
inside sh -c "grep -q '^NoNewPrivs:.1' /proc/$pid/status && grep -q '^CapEff:.0*$' /proc/$pid/status" ||
  fail "the process has rights that the unit takes away"
echo "exposure: $(inside systemd-analyze security --no-pager rebate.service | tail -1)"

[ "$(ask 'set kept 0 0 5\r\nvalue\r\n')" = STORED ] || fail "set"
# Every millisecond a new connection while the package is installed again, which is what an upgrade does.
# shellcheck disable=SC2016
inside bash -c 'refused=0 made=0
while [ ! -e /tmp/done ]; do
  if { exec 3<>/dev/tcp/127.0.0.1/11211; } 2>/dev/null; then made=$((made + 1)); exec 3<&-; else refused=$((refused + 1)); fi
  sleep 0.001
done
echo "$made $refused" >/tmp/load' &
load=$!
sleep 1
inside dpkg -i /root/rebate.deb >&2
[ "$(ask 'get kept\r\n')" = $'VALUE kept 0 5\nvalue\nEND' ] || fail "the item is lost after the upgrade"
inside touch /tmp/done
wait "$load"
read -r made refused <<<"$(inside cat /tmp/load)"
echo "upgrade under load: $made connections, $refused refused"
[ "$refused" = 0 ] || fail "clients were refused during the upgrade"
[ "$made" -gt 100 ] || fail "there was no load during the upgrade"
[ "$(inside systemctl show -P MainPID rebate.service)" != "$pid" ] || fail "the upgrade did not restart the service"

inside sh -c 'echo "# mine" >>/etc/rebate/rebate.toml && dpkg -i /root/rebate.deb' >&2
inside grep -qx '# mine' /etc/rebate/rebate.toml || fail "the configuration was replaced"
inside systemctl reload rebate.service || fail "reload"
inside dpkg --purge rebate >&2
! inside test -e /var/lib/rebate -o -e /etc/rebate/rebate.toml || fail "files are left after the purge"
! ask 'get nothing\r\n' >/dev/null 2>&1 || fail "something serves after the purge"
echo "1 passed, 0 failed"
