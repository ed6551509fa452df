#!/usr/bin/env bash
# Gets what the tests of deploy/ need: prometheus and promtool, as Debian packages them, and systemd-analyze.
# Called by `make`; safe to run again, and quick when all is there. The package of Prometheus is unpacked into
# .cache and never installed: that would start a service on this machine. Without them the other tests still run,
# and their end tells what did not; where nothing may be skipped (CI or TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/getting.sh
HOME_OF=.cache/prometheus

has_apt() { command -v apt-get >/dev/null 2>&1; }
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
  if can_install; then retry apt-get update -qq || true; fi
  has_prometheus || { echo "unpacking prometheus (for the tests of deploy/)"; retry unpack; } || true
  if ! has_analyze && can_install; then
    install "systemd-analyze, which checks the units" systemd || true
  fi
fi
if ! { has_prometheus && has_analyze; }; then
  without "the tests of alert rules, scraping or units"
fi
