#!/usr/bin/env bash
# Gets what the tests of deploy/ need: prometheus and promtool, as Debian packages them, and systemd-analyze.
# Called by `make`; safe to run again, and quick when all is there. The package of Prometheus is unpacked into
# .cache and never installed: that would start a service on this machine. Without them the other tests still run,
# and their end tells what did not; where nothing may be skipped (CI or TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
HOME_OF=.cache/prometheus

retry() {  # the network may stutter: three tries, with a pause that grows
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    echo "failed (try $attempt of 3): $*" >&2
    sleep $((attempt * 5))
  done
  return 1
}

has_apt() { command -v apt-get >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }
has_prometheus() {
  { command -v prometheus && command -v promtool; } >/dev/null 2>&1 \
    || { "$HOME_OF/usr/bin/promtool" --version && "$HOME_OF/usr/bin/prometheus" --version; } >/dev/null 2>&1
}
has_analyze() { command -v systemd-analyze >/dev/null 2>&1; }
unpack() {
  mkdir -p "$HOME_OF"
  (cd "$HOME_OF" && apt-get download -qq -o APT::Sandbox::User=root prometheus && dpkg -x prometheus_*.deb . && rm -f prometheus_*.deb)
}

if has_apt && ! { has_prometheus && has_analyze; }; then
  if is_root; then retry apt-get update -qq || true; fi
  has_prometheus || { echo "unpacking prometheus (for the tests of deploy/)"; retry unpack; } || true
  if ! has_analyze && is_root; then
    echo "installing systemd (for systemd-analyze, which checks the units)"
    DEBIAN_FRONTEND=noninteractive retry apt-get install -y -qq --no-install-recommends systemd >/dev/null || true
  fi
fi
if ! { has_prometheus && has_analyze; }; then
  case "${CI:-}${TRIPLETD_NOTHING_SKIPPED:-}" in
    "" | 0 | false) echo "the tests of alert rules, scraping or units will not run" >&2 ;;
    *) exit 1 ;;
  esac
fi
