#!/usr/bin/env bash
# Gets what the tests of the Helm chart need: helm, built by Go from its module into .cache/helm. Called by `make`; safe to
# run again, and quick when it is there. Go, where the machine has none that is new enough, is taken as Debian packages
# it; from 1.21 on it gets the one that the module asks for by itself. Without helm the other tests still run, and their end
# tells what did not; where nothing may be skipped (CI or TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/getting.sh
VERSION=v3.16.4
TO=$PWD/.cache/helm
FOR="the tests of the Helm chart"

has_helm() { "$TO/helm-$VERSION" version >/dev/null 2>&1; }
find_go() {
  local one
  for one in go /usr/local/go/bin/go /usr/lib/go-1.2[1-9]/bin/go; do
    command -v "$one" >/dev/null 2>&1 && { command -v "$one"; return 0; }
  done
  return 1
}
new_enough() {
  local minor
  minor=$("$1" env GOVERSION | sed -E 's/^go1\.([0-9]+).*/\1/')
  [ "${minor:-0}" -ge 21 ]
}
build() {
  mkdir -p "$TO"
  GOBIN="$TO" GOTOOLCHAIN=auto "$1" install -trimpath -ldflags "-s -w" "helm.sh/helm/v3/cmd/helm@$VERSION" \
    && mv "$TO/helm" "$TO/helm-$VERSION" && ln -sf "helm-$VERSION" "$TO/helm"
}

has_helm && [ -e "$TO/helm" ] && exit 0
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
  echo "building helm $VERSION (for the tests of the Helm chart; two minutes, once)"
  retry build "$GO" || true
fi
if ! has_helm; then
  without "$FOR"
fi
