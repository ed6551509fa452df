#!/usr/bin/env bash
# Gets what the tests of the page need: a Chromium (Debian's, or any other that is there).
# Called by `make`; safe to run again, and quick when it is there. Without one the other tests still run, and
# their end tells what did not; where nothing may be skipped (CI or TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/getting.sh
BIN=${BIN:-.venv/bin}

has_chromium() { "$BIN/python" -m tests.harness.chromium >/dev/null 2>&1; }

if ! has_chromium && can_install; then
  retry apt-get update -qq || true
  install "the tests of the page" chromium || true
fi
if ! has_chromium; then
  "$BIN/python" -m tests.harness.chromium || true  # says what is missing, and how to get it
  without "the tests of the page in a browser"
fi
