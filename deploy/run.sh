#!/usr/bin/env bash
# The cache experiment in containers: five configurations by compose, the same load on the frontend's published port,
# a table of latency and CPU, then every container killed and started again under load, and both ends of the lane
# again. Everything is taken down at the end, whichever end it is.
# Usage: deploy/run.sh       Images are built if there are none; deploy/image.sh builds them anew.
#   RUNS=3 RATE=500 SIZES="4KiB 64KiB" DURATION=2s   what is measured
#   REBATE_BINARY=FILE                               the `rebate` that loads, and goes into new images
# Results stay in target/deploy/results.
# Exit codes: 0 done, 1 it failed, or a value was wrong, or a connection was lost that should not have been,
# 3 skipped: no Docker engine or no compose.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${RUNS:-3}
rate=${RATE:-500}
read -ra sizes <<<"${SIZES:-4KiB 64KiB}"
duration=${DURATION:-2s}
rebate=${REBATE_BINARY:-target/release/rebate}
results=target/deploy/results
configurations=(monolith_software monolith_iaa microservice_software microservice_iaa lane_iaa)
project="rebate-experiment"
load_pid=

skip() {
  echo "SKIPPED: $1" >&2
  exit 3
}

# The engine, compose in either of its forms, the generator, and images.
prepare() {
  docker info >/dev/null 2>&1 ||
    skip "no Docker engine answers: install one (Debian: apt-get install docker.io \
docker-compose), start it (systemctl start docker, or dockerd as root), and be allowed to use it \
(group docker)"
  if docker compose version >/dev/null 2>&1; then
    compose_command=(docker compose)
  elif command -v docker-compose >/dev/null; then
    compose_command=(docker-compose)
  else
    skip "no compose is here (Debian: apt-get install docker-compose)"
  fi
  if [ -z "${REBATE_BINARY:-}" ]; then
    cargo build --release -p cli
  fi
  docker image inspect rebate:local rebate-memcached:local >/dev/null 2>&1 || deploy/image.sh
  # A container that is started again keeps a named port, and no other.
  read -r REBATE_PORT REBATE_GRPC_PORT < <(python3 deploy/report.py ports)
  export REBATE_PORT REBATE_GRPC_PORT
}

# compose ARGS...: on the files of $configuration.
compose() {
  local files=(-f deploy/compose.yaml) settings=()
  [[ $configuration == monolith_* ]] && files+=(-f deploy/monolith.yaml)
  [[ $configuration == lane_* ]] && files+=(-f deploy/lane.yaml)
  [[ $configuration == *_iaa ]] && settings=(--env-file deploy/virtual-iaa.env)
  "${compose_command[@]}" --project-name "$project" "${settings[@]}" "${files[@]}" "$@"
}

take_down() {
  trap '' INT TERM
  if [ -n "$load_pid" ]; then
    kill "$load_pid" 2>/dev/null || true
  fi
  if [ -n "${configuration:-}" ]; then
    compose down --timeout 5 --volumes --remove-orphans >/dev/null 2>&1 || true
  fi
}

# container SERVICE: its id, by the labels that compose gives.
container() {
  docker ps --quiet --filter "label=com.docker.compose.project=$project" \
    --filter "label=com.docker.compose.service=$1"
}

# page SERVICE PATH: its admin page.
page() {
  local address
  address=$(docker port "$(container "$1")" 9150)
  exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
  cat <&3
  exec 3<&-
}

# up: starts $configuration, and says what compose said if it could not.
up() {
  if ! compose up --detach >"$results/compose.log" 2>&1; then
    cat "$results/compose.log" >&2
    exit 1
  fi
  await_ready
}

services() {
  if [[ $configuration == monolith_* ]]; then
    echo frontend store memcached scheduler
  else
    echo frontend compression store memcached scheduler
  fi
}

ready() {
  local service
  for service in $(services); do
    [ "$service" = memcached ] && continue
    (page "$service" /readyz) 2>/dev/null | grep -q '^HTTP/1.1 200' || return 1
  done
}

await_ready() {
  local waited
  for waited in $(seq 100); do
    if ready; then return; fi
    sleep 0.2
  done
  echo "run.sh: $configuration is not ready after $waited attempts; its logs:" >&2
  compose logs --tail 20 >&2
  exit 1
}

# What the containers have cost and counted so far: a name and a number a line.
counters() {
  local service pid compressing=compression
  [[ $configuration == monolith_* ]] && compressing=frontend
  for service in $(services); do
    pid=$(docker inspect --format '{{.State.Pid}}' "$(container "$service")")
    # User and system time (ticks), behind the name in brackets.
    sed 's/.*) //' "/proc/$pid/stat" |
      awk -v name="cpu_s.$service" -v ticks="$(getconf CLK_TCK)" \
        '{ print name, ($12 + $13) / ticks }'
  done
  page frontend /metrics |
    awk '/^rebate_fallback_total/ { sum += $NF } END { print "fallbacks", sum + 0 }'
  page "$compressing" /metrics | awk '
    /^rebate_device_counter_total/ && /virtual/ && /counter="jobs"/ { jobs += $NF }
    /^rebate_device_counter_total/ && /virtual/ && /counter="late"/ { late += $NF }
    /^rebate_lane_jobs_total{result="begun"}/ { lane += $NF }
    END { print "virtual_jobs", jobs + 0; print "late", late + 0; print "lane_jobs", lane + 0 }'
}

# Jobs that came to the compression service over lanes since it started.
lane_jobs() {
  page compression /metrics | awk '/^rebate_lane_jobs_total{result="begun"}/ { print $NF }'
}

# load SIZE DURATION: the experiment's load, on the published port.
load() {
  "$rebate" load "127.0.0.1:$REBATE_PORT" --rate "$rate" --arrivals uniform --connections 16 \
    --get-share 0.9 --keys 64 --zipf 0 --value-size "$1" --warmup 500ms --duration "$2" --json
}

measure() {
  local size point
  for size in "${sizes[@]}"; do
    point=$results/$configuration.$size.$1
    # Once before it counts: a virtual device remembers the results of these very bytes.
    load "$size" "$duration" >/dev/null
    counters >"$point.before"
    load "$size" "$duration" >"$point.json"
    counters >"$point.after"
  done
}

# Loads until jobs go over the lane again: a frontend tries a service that it lost ever more rarely.
await_lane() {
  local before attempt
  for attempt in $(seq 10); do
    before=$(lane_jobs)
    load 4KiB 1s >/dev/null
    if [ "$(lane_jobs)" -gt "$before" ]; then return; fi
  done
  echo "run.sh: no job went over the lane in $attempt s after both ends were back" >&2
  exit 1
}

# disturb SERVICE: ten seconds of load in which its container is killed and, two seconds later, started again.
disturb() {
  local id kill=$results/kills/$configuration.$1
  id=$(container "$1")
  load 4KiB 10s >"$kill.killed.json" &
  load_pid=$!
  sleep 3
  docker kill "$id" >/dev/null
  sleep 2
  docker start "$id" >/dev/null
  wait "$load_pid" || true
  load_pid=
  await_ready
  [[ $configuration == lane_* ]] && await_lane
  load 4KiB 1s >"$kill.restarted.json"
}

# kill_each CONFIGURATION SERVICE...: in a deployment of its own.
kill_each() {
  local service
  configuration=$1
  shift
  up
  for service in "$@"; do
    echo "$configuration: killing $service under load" >&2
    disturb "$service"
  done
}

main() {
  local run
  prepare
  rm -rf "$results"
  mkdir -p "$results/kills"
  trap take_down EXIT
  trap 'exit 130' INT TERM
  for run in $(seq "$runs"); do
    for configuration in "${configurations[@]}"; do
      echo "run $run of $runs: $configuration" >&2
      # Longer than a measurement: a health check starts a process, which is not what is measured.
      REBATE_HEALTH_INTERVAL=1h up
      measure "$run"
      compose down --timeout 5 --volumes >/dev/null 2>&1
    done
  done
  kill_each microservice_iaa frontend compression store memcached scheduler
  compose down --timeout 5 --volumes >/dev/null 2>&1
  kill_each lane_iaa frontend compression
  python3 deploy/report.py table "$results"
}

main
