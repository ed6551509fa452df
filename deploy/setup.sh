#!/usr/bin/env bash
# Makes the virtual environment in $VENV and installs tripletd with its development tools into it.
# Called by `make`; safe to run again. Every failure says what to do next.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

fail() { printf 'set-up stopped: %s\n' "$*" >&2; exit 1; }

command -v "$PYTHON" >/dev/null 2>&1 || fail "no $PYTHON on this machine. Install Python 3.11 or newer (Debian, Ubuntu: apt-get install python3 python3-venv)."
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$("$PYTHON" --version) is too old: tripletd needs Python 3.11 or newer. Point at one with: make PYTHON=/path/to/python3.11"

# Debian ships Python without ensurepip; python3-venv brings it.
if ! "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1; then
  package="python3-venv"
  versioned="$("$PYTHON" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}-venv")')"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing $package (this Python has no ensurepip)"
    apt-get update -qq && { apt-get install -y -qq "$package" || apt-get install -y -qq "$versioned"; } >/dev/null \
      || fail "could not install $package. Install it by hand and run make again."
  else
    fail "this Python has no ensurepip. Run: sudo apt-get install $package   and then make again."
  fi
fi

if ! "$VENV/bin/python" -c 'import pip' >/dev/null 2>&1; then
  echo "set-up: a virtual environment in $VENV"
  rm -rf "$VENV"
  "$PYTHON" -m venv "$VENV" || fail "could not make a virtual environment in $VENV."
fi

echo "set-up: installing the packages into $VENV, a minute or two"
# The network may stutter: three tries, with a pause that grows.
for attempt in 1 2 3; do
  if "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; then
    # What cannot be compiled now is compiled when it is first used.
    "$VENV/bin/python" -P -m daemon.up.kernels || true
    exit 0
  fi
  echo "installing the packages failed (try $attempt of 3)" >&2
  sleep $((attempt * 5))
done
fail "the packages could not be installed. Check the network and the package index of pip, then run make again."
