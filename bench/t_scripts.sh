#!/usr/bin/env bash
# Runs memcached's own test scripts (t/*.t) against a binary and prints one row a script.
#
#   bench/t_scripts.sh SOURCE BINARY [SCRIPT...]
#
#   SOURCE   a memcached checkout: its t/ is copied, at the tag in TAG where SOURCE is a git repository
#   BINARY   rebate (run as `rebate memcached`), or a memcached for comparison
#   SCRIPT   names such as getset.t; without any, all of them
#
#   TAG      default 1.6.18, the version whose answers are ours
#   JOBS     scripts at a time, default 4; most of them sleep most of the time
#   LIMIT    seconds a script may take, default 120
#   ORACLE   a memcached that failing scripts are run against again, default `memcached`; empty for none.
#            A script that fails there too says nothing about us: it wants a debug build or a feature of a
#            build that this machine's memcached does not have either.
#   LOGS     a folder to keep the output of every script in
#
# Nothing of memcached's is kept: the copy lives in a temporary folder. Needs perl, and git for a repository.
# The scripts of TLS need the module IO::Socket::SSL, and are run with SSL_TEST=1.
# For rebate, only udp.t starts the server with UDP. The other scripts do it although they never use it.
# The exit status is 1 when a script fails that the oracle passes.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
source=$1 binary=$(command -v "$2") || { echo "no binary at $2" >&2; exit 2; }
binary=$(realpath "$binary")
shift 2
[ -z "${LOGS:-}" ] || LOGS=$(realpath -m "$LOGS")
tag=${TAG:-1.6.18} jobs=${JOBS:-4} oracle=${ORACLE-memcached}
export LIMIT=${LIMIT:-120}

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

copy_source() {
    if git -C "$source" rev-parse --git-dir >/dev/null 2>&1; then
        git -C "$source" archive "$tag" | tar -x -C "$1"
    else
        cp -r "$source"/. "$1"
    fi
    [ -d "$1/t" ] || { echo "$source has no t/ folder" >&2; exit 2; }
    # Every start asks for this option, which only builds with a system call filter know.
    sed -i 's/ *-o relaxed_privileges//' "$1"/t/lib/MemcachedTest.pm "$1"/t/*.t
}

# The scripts look for two programs beside t/: the server and a runner with a time limit. Ours leaves the limit
# to the caller, so that the server is the child that the script's signals reach.
dress() {
    local folder=$1 server=$2 words=
    case $(basename "$server") in
        memcached*) ;;
        *)
            words=memcached
            sed -i 's/if (supports_udp() &&/if ($0 =~ m{udp[.]t$} \&\&/' "$folder/t/lib/MemcachedTest.pm"
            ;;
    esac
    printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$server" "$words" >"$folder/memcached-debug"
    printf '#!/bin/sh\nshift\nexec "$@"\n' >"$folder/timedrun"
    chmod +x "$folder/memcached-debug" "$folder/timedrun"
}

# One script: its output goes to SCRIPT.log, its verdict (pass, fail or skip, then why) to SCRIPT.verdict.
run_one() {
    local script=$1 log=$1.log status=0 group
    case $script in ssl_*) export SSL_TEST=1 ;; esac
    # In a session of its own, so that servers it leaves behind can be found and ended with it.
    setsid timeout --foreground -k 5 "$LIMIT" perl -I t/lib "t/$script" >"$log" 2>&1 </dev/null &
    group=$!
    wait "$group" || status=$?
    kill -KILL -- "-$group" 2>/dev/null || true
    local skip bad
    skip=$(sed -n 's/^1\.\.0 *# *[Ss][Kk][Ii][Pp] *//p' "$log" | head -1)
    bad=$(grep -c '^not ok' "$log" || true)
    if [ -n "$skip" ] || { [ "$status" -eq 0 ] && grep -q '^1\.\.0' "$log"; }; then
        echo "skip ${skip:-nothing to run}"
    elif [ "$status" -eq 0 ] && [ "$bad" -eq 0 ]; then
        echo "pass $(grep -c '^ok' "$log") checks"
    else
        echo "fail $(why "$log" "$status" "$bad")"
    fi >"$script.verdict"
}

why() {
    local log=$1 status=$2 bad=$3 first
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
        echo "no end within $LIMIT s after $(grep -c '^ok' "$log") checks"
        return
    fi
    first=$(grep -m1 '^not ok' "$log" | sed 's/^not ok \([0-9]*\) - /\1: /;s/^not ok/check/' || true)
    # No failed check: it died, and said why last.
    [ -n "$first" ] || first=$(grep -v -e '^ok' -e '^1\.\.' -e '^ *$' -e '^# ' -e '^listening' "$log" | tail -1)
    echo "$bad of $(grep -cE '^(not )?ok' "$log") checks: ${first:0:90}"
}
export -f run_one why

run_all() {
    local folder=$1
    shift
    (cd "$folder" && printf '%s\n' "$@" | xargs -P "$jobs" -I{} bash -c 'run_one "$1"' _ {})
}

ours=$room/ours
mkdir "$ours"
copy_source "$ours"
dress "$ours" "$binary"
cd "$ours"
if [ $# -gt 0 ]; then scripts=("$@"); else mapfile -t scripts < <(cd t && ls -- *.t); fi
run_all "$ours" "${scripts[@]}"

mapfile -t failing < <(grep -l '^fail' -- *.verdict | sed 's/\.verdict$//' || true)
if [ ${#failing[@]} -gt 0 ] && [ -n "$oracle" ] && oracle=$(command -v "$oracle"); then
    mkdir "$room/oracle"
    copy_source "$room/oracle"
    dress "$room/oracle" "$oracle"
    run_all "$room/oracle" "${failing[@]}"
fi

new_failures=0
printf '%-28s %-6s %s\n' script result why
for script in "${scripts[@]}"; do
    read -r result reason <"$script.verdict"
    if [ "$result" = fail ]; then
        if grep -q '^fail' "$room/oracle/$script.verdict" 2>/dev/null; then
            result=fail*
        else
            new_failures=$((new_failures + 1))
        fi
    fi
    printf '%-28s %-6s %s\n' "$script" "$result" "$reason"
done
count() { cat -- *.verdict | grep -c "^$1" || true; }
[ -z "${LOGS:-}" ] || { mkdir -p "$LOGS" && cp -- *.log "$LOGS"; }
printf '\n%s pass, %s skip, %s fail' "$(count pass)" "$(count skip)" "$(count fail)"
[ -n "$oracle" ] && printf ', of which %s pass with %s (fail*: fails there too)' "$new_failures" "$oracle"
echo
[ "$new_failures" -eq 0 ]
