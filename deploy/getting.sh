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
