#!/usr/bin/env bash
# Gets what the tests of object stores need: versitygw, a server that speaks S3's protocol, built by Go from its
# module. Called by `make`; safe to run again, and quick when it is there. The program goes to .cache/s3/bin, and
# Go, where the machine has none that is new enough, is taken as Debian packages it; from 1.21 on it gets the one
# that the module asks for by itself. Without the server the other tests still run, and their end tells what did
# not; where nothing may be skipped (CI or TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/getting.sh
VERSION=v1.8.0
TO=$PWD/.cache/s3/bin
FOR="the tests of object stores"

has_server() { "$TO/versitygw-$VERSION" --version >/dev/null 2>&1; }
find_go() {  # backports and the usual places of a Go that was unpacked by hand
  local one
  for one in go /usr/local/go/bin/go /usr/lib/go-1.2[1-9]/bin/go; do
    command -v "$one" >/dev/null 2>&1 && { command -v "$one"; return 0; }
  done
  return 1
}
new_enough() {  # 1.21 and later can get another Go
  local minor
  minor=$("$1" env GOVERSION | sed -E 's/^go1\.([0-9]+).*/\1/')
  [ "${minor:-0}" -ge 21 ]
}
build() {
  mkdir -p "$TO"
  GOBIN="$TO" GOTOOLCHAIN=auto "$1" install -trimpath -ldflags "-s -w" \
    "github.com/versity/versitygw/cmd/versitygw@$VERSION" \
    && mv "$TO/versitygw" "$TO/versitygw-$VERSION"
}

has_server && exit 0
GO=$(find_go || true)
if { [ -z "$GO" ] || ! new_enough "$GO"; } && can_install; then
  retry apt-get update -qq || true
  for package in golang-1.24-go golang-1.23-go golang-go; do
    apt-cache show "$package" >/dev/null 2>&1 || continue
    install "$FOR" "$package" && break
  done
  GO=$(find_go || true)
fi
if [ -n "$GO" ] && new_enough "$GO"; then
  echo "building versitygw $VERSION (for the tests of object stores; a few minutes, once)"
  retry build "$GO" || true
fi
if ! has_server; then
  without "$FOR"
fi
