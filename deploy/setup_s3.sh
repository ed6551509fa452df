#!/usr/bin/env bash
# Gets what the tests of object stores need: versitygw, a server that speaks S3's protocol, built by Go from its
# module into .cache/s3/bin. Called by `make`; safe to run again, and quick when it is there. Without the server the
# other tests still run, and their end tells what did not; where nothing may be skipped (CI or
# TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/getting.sh
VERSION=v1.8.0
PROGRAM=$PWD/.cache/s3/bin/versitygw-$VERSION
FOR="the tests of object stores"

has_server() { "$PROGRAM" --version >/dev/null 2>&1; }

has_server || by_go "$FOR" "$PROGRAM" github.com/versity/versitygw/cmd/versitygw "$VERSION"
has_server || without "$FOR"
