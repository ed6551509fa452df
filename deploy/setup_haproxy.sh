#!/usr/bin/env bash
# Gets what the tests of several servers behind a balancer need: haproxy, as Debian packages it. Called by `make`; safe
# to run again, and quick when it is there. Where the machine has none, the package and those libraries of it that are
# not installed are unpacked into .cache and never installed: that would start a service on this machine. Without
# haproxy the other tests still run, and their end tells what did not; where nothing may be skipped (CI or
# TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/getting.sh
HOME_OF=$PWD/.cache/haproxy
FOR="the tests of a balancer"

has_haproxy() {
  haproxy -v >/dev/null 2>&1 || "$HOME_OF/haproxy" -v >/dev/null 2>&1
}
unpack() {
  local packages
  mkdir -p "$HOME_OF"
  # What would be installed: itself, and what it needs and the machine lacks.
  packages=$(apt-get install --simulate --no-install-recommends haproxy | awk '/^Inst /{print $2}')
  [ -n "$packages" ] || return 1
  (
    cd "$HOME_OF" || exit 1
    # shellcheck disable=SC2086  one word for each package
    apt-get download -qq -o APT::Sandbox::User=root $packages || exit 1
    for file in *.deb; do dpkg -x "$file" . || exit 1; done
    rm -f ./*.deb
  ) || return 1
  cat > "$HOME_OF/haproxy" <<'END'
#!/bin/sh
# haproxy with the libraries beside it.
here=$(dirname "$(readlink -f "$0")")
for folder in "$here"/usr/lib/*-linux-gnu* "$here"/lib/*-linux-gnu*; do
  [ -d "$folder" ] && LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH
exec "$here/usr/sbin/haproxy" "$@"
END
  chmod +x "$HOME_OF/haproxy"
}

if ! has_haproxy && command -v apt-get >/dev/null 2>&1; then
  if can_install; then retry apt-get update -qq || true; fi
  echo "unpacking haproxy (for $FOR)"
  retry unpack || true
fi
has_haproxy || without "$FOR"
