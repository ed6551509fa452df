#!/usr/bin/env bash
# Gets what the tests of the Helm chart need: helm, built by Go from its module into .cache/helm. Called by `make`;
# safe to run again, and quick when it is there. Without helm the other tests still run, and their end tells what did
# not; where nothing may be skipped (CI or TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/getting.sh
VERSION=v3.16.4
PROGRAM=$PWD/.cache/helm/helm-$VERSION
FOR="the tests of the Helm chart"

has_helm() { "$PROGRAM" version >/dev/null 2>&1; }

has_helm || by_go "$FOR" "$PROGRAM" helm.sh/helm/v3/cmd/helm "$VERSION"
if has_helm; then
  ln -sf "helm-$VERSION" "$(dirname "$PROGRAM")/helm"
else
  without "$FOR"
fi
