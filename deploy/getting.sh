# Sourced by the scripts that get what some tests need: retrying, installing, and what it means to go without.

retry() {  # the network may stutter: three tries, with a pause that grows
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    echo "failed (try $attempt of 3): $*" >&2
    sleep $((attempt * 5))
  done
  return 1
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

install() {  # install WHAT-FOR PACKAGE...
  echo "installing ${*:2} (for $1)"
  DEBIAN_FRONTEND=noninteractive retry apt-get install -y -qq --no-install-recommends "${@:2}" >/dev/null
}

without() {  # without WHAT: these will not run, which is a failure where nothing may be skipped
  case "${CI:-}${TRIPLETD_NOTHING_SKIPPED:-}" in
    "" | 0 | false) echo "$1 will not run" >&2 ;;
    *) exit 1 ;;
  esac
}

_find_go() {  # the usual places of a Go that was unpacked by hand, and Debian's
  local one
  for one in go /usr/local/go/bin/go /usr/lib/go-1.2[1-9]/bin/go; do
    command -v "$one" >/dev/null 2>&1 && { command -v "$one"; return 0; }
  done
  return 1
}

_new_enough() {  # 1.21 and later can get another Go
  local minor
  minor=$("$1" env GOVERSION | sed -E 's/^go1\.([0-9]+).*/\1/')
  [ "${minor:-0}" -ge 21 ]
}

_build_by_go() {  # _build_by_go GO FILE PACKAGE VERSION
  mkdir -p "$(dirname "$2")"
  GOBIN=$(dirname "$2") GOTOOLCHAIN=auto "$1" install -trimpath -ldflags "-s -w" "$3@$4" \
    && mv "$(dirname "$2")/$(basename "$3")" "$2"
}

# by_go WHAT-FOR FILE PACKAGE VERSION: FILE is made by Go from the module; Go is taken as Debian packages it, where the
# machine has none that is new enough. Says nothing of how it went: look whether FILE runs.
by_go() {
  local go package
  go=$(_find_go || true)
  if { [ -z "$go" ] || ! _new_enough "$go"; } && can_install; then
    retry apt-get update -qq || true
    for package in golang-1.24-go golang-1.23-go golang-go; do
      apt-cache show "$package" >/dev/null 2>&1 || continue
      install "$1" "$package" && break
    done
    go=$(_find_go || true)
  fi
  if [ -n "$go" ] && _new_enough "$go"; then
    echo "building $(basename "$3") $4 (for $1; a few minutes, once)"
    retry _build_by_go "$go" "$2" "$3" "$4" || true
  fi
}
