#!/usr/bin/env bash
# Gets what the tests of the page need: a Chromium (Debian's, or any other that is there).
# Called by `make`; safe to run again, and quick when it is there. Without one the other tests still run, and
# their end tells what did not; where nothing may be skipped (CI or TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}

retry() {  # the network may stutter: three tries, with a pause that grows
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    echo "failed (try $attempt of 3): $*" >&2
    sleep $((attempt * 5))
  done
  return 1
}

has_chromium() { "$BIN/python" -m tests.browser.chromium >/dev/null 2>&1; }

if ! has_chromium && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing chromium (for the tests of the page)"
  retry apt-get update -qq || true
  DEBIAN_FRONTEND=noninteractive retry apt-get install -y -qq --no-install-recommends chromium >/dev/null || true
fi
if ! has_chromium; then
  "$BIN/python" -m tests.browser.chromium || true  # says what is missing, and how to get it
  case "${CI:-}${TRIPLETD_NOTHING_SKIPPED:-}" in
    "" | 0 | false) echo "the tests of the page in a browser will not run" >&2 ;;
    *) exit 1 ;;
  esac
fi
