#!/usr/bin/env bash
# Checks in seconds what a release is made of, without building it: the unit, the scripts of the packages, the dashboard,
# the alerts and the chart. A check whose tool is missing is skipped and says so.
# Usage: deploy/check.sh [REBATE]   with the program REBATE also its completions, man pages and configurations
# Exit codes: 0 nothing failed, 1 something did.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
rebate=${1:-} passed=0 failed=0 skipped=0
PATH="$PATH:$HOME/go/bin"

# check NAME COMMAND...: 3 means skipped, as in the other scripts.
check() {
  local output code=0
  output=$("${@:2}" 2>&1) || code=$?
  case $code in
    0) passed=$((passed + 1)) ;;
    3) skipped=$((skipped + 1)) && echo "SKIPPED: $1: $output" ;;
    *) failed=$((failed + 1)) && echo "FAILED: $1: $output" ;;
  esac
}
needs() { command -v "$1" >/dev/null || { echo "$1 is missing"; return 3; }; }

exposure() {
  needs systemd-analyze || return
  # The threshold is in tenths.
  systemd-analyze security --offline=true --no-pager --threshold=19 deploy/package/rebate.service
}

addresses_agree() {
  local socket service
  socket=$(sed -n 's/^ListenStream=//p' deploy/package/rebate.socket)
  service=$(sed -n 's/^listen = \["\(.*\)"\]$/\1/p' deploy/package/rebate.toml)
  [ "$socket" = "$service" ] || { echo "rebate.socket has $socket and rebate.toml has $service"; return 1; }
}

scripts_are_sound() {
  needs shellcheck || return
  shellcheck scripts/release deploy/*.sh deploy/package/*.sh
}

# The notes are read elsewhere, so a link in them is either whole or none.
release_notes() {
  local notes url
  for url in "" https://git.example/rebate; do
    notes=$(scripts/release_notes.py 0 ${url:+--url "$url"} 2>&1) || { echo "$notes"; return 1; }
    notes=$(grep -oE '\]\([^)]*\)' <<<"$notes" | grep -v '^](https://') || continue
    echo "relative links: $notes"
    return 1
  done
}

alerts() {
  needs promtool || return
  promtool check rules deploy/alerts.yaml && promtool test rules deploy/alerts_test.yaml
}

packaged_configuration() {
  "$rebate" serve --config deploy/package/rebate.toml --print-config
}

# Every flag that the help shows is in the completions and in the man page.
completions_have_every_flag() {
  local flag shell script page text
  page=$(mktemp -d)
  "$rebate" man --out "$page" >/dev/null || return
  text=$(sed 's/\\-/-/g' "$page/rebate-serve.1")
  rm -r "$page"
  for shell in bash fish zsh; do
    script=$("$rebate" completions "$shell") || return
    for flag in $("$rebate" serve --help | grep -oE -- '^ +(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
      grep -q -- "${flag#--}" <<<"$script" || { echo "$shell lacks $flag"; return 1; }
      grep -q -- "$flag" <<<"$text" || { echo "the page lacks $flag"; return 1; }
    done
  done
}

# bash itself reads the script and completes a flag of a command.
bash_completes() {
  local got
  got=$(bash -c 'eval "$("$0" completions bash)"; COMP_WORDS=(rebate serve --store); COMP_CWORD=2
    _rebate rebate --store serve; printf "%s\n" "${COMPREPLY[@]}"' "$rebate")
  [ "$got" = --store ] || { echo "rebate serve --store is completed to: $got"; return 1; }
}

check "exposure of the unit is below 2.0" exposure
check "socket and configuration have one address" addresses_agree
check "scripts" scripts_are_sound
check "release notes" release_notes
check "the dashboard" scripts/dashboard.py --check
check "alerts" alerts
check "the examples of sidecars" deploy/check_sidecars.py ${rebate:+"$rebate"}
check "the chart" deploy/helm/check.py ${rebate:+--rebate "$rebate"}
if [ -n "$rebate" ]; then
  check "the packaged configuration" packaged_configuration
  check "completions and pages have every flag" completions_have_every_flag
  check "bash completes" bash_completes
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
