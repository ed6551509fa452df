# The two commands are `make demo` and `make test`; both do all set-up.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# nproc believes OMP_NUM_THREADS, which is 1 below and in every make that this one starts.
CORES := $(shell env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
# Processes that run tests: two more than cores, because a third of their time they wait. Each needs, with what it starts,
# up to two gigabytes.
WORKERS ?= $(shell echo $$(($(CORES) + 2)))
# One BLAS thread per process: on few shared cores two threads turn a 50 us product into milliseconds.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
# Hundreds of processes are started by the tests: each would compile the same sources again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check bench soak lint unit quick ready kafka chromium prometheus buckets helm haproxy kubernetes quality results setup setup-photos clean help

help:
	@echo "make demo   learn from simulated clicks over real photos (a minute or two)"
	@echo "make check  every check and the quick tests: no brokers, browsers and processes"
	@echo "make test   every check and every test"
	@echo "make soak   crashes, failing disks and brokers by the hundred, one table (long; SOAK=--help)"
	@echo "make quality  what clicks teach on real sets, beside rivals, into docs/quality.md (hours; QUALITY=--help)"
	@echo "make results  what labels teach on real sets, beside other methods, into docs/results.md (an hour; RESULTS=--help)"
	@echo "make bench  measure speed and memory into tests/benchmarks/results.json"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt deploy/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash deploy/setup.sh
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/tripletd demo

# Checks take one core and run beside the tests, which leave one idle for a third of the time. What they find is told
# when they find it, and at the end.
define beside_lint
@mkdir -p .cache; \
{ $(MAKE) --no-print-directory lint > .cache/lint.txt 2>&1 || { cat .cache/lint.txt; exit 1; }; } & checks=$$!; \
$(MAKE) --no-print-directory $(1); tested=$$?; \
wait $$checks; linted=$$?; cat .cache/lint.txt; exit $$((tested | linted))
endef

test: $(STAMP)
	$(call beside_lint,unit)

# What to run before every commit: no broker, no browser, no process of its own.
check: $(STAMP)
	$(call beside_lint,quick)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations=30 tests

# These wait for nothing: one worker for each core.
quick: $(STAMP)
	$(BIN)/python -m pytest -n $(CORES) --dist loadgroup --quick --durations=30 tests

# Brokers, a browser, Prometheus' tools, and every kernel compiled; quick when all is there. One after the other: two
# would wait for the same lock of the system's packages.
ready: $(STAMP)
	@BIN="$(BIN)" bash deploy/setup_kafka.sh
	@BIN="$(BIN)" bash deploy/setup_chromium.sh
	@bash deploy/setup_prometheus.sh
	@bash deploy/setup_s3.sh
	@bash deploy/setup_helm.sh
	@bash deploy/setup_haproxy.sh
	$(BIN)/python -P -m daemon.up.kernels

# Java, Maven and the jars of the broker that the tests start; quick when they are there.
kafka: $(STAMP)
	@BIN="$(BIN)" bash deploy/setup_kafka.sh

# A browser for the tests of the page; quick when it is there.
chromium: $(STAMP)
	@BIN="$(BIN)" bash deploy/setup_chromium.sh

# What checks the alert rules and units of deploy/; quick when it is there.
prometheus:
	@bash deploy/setup_prometheus.sh

# A server of S3's protocol for the tests of object stores; quick when it is there.
buckets:
	@bash deploy/setup_s3.sh

# Renders the Helm chart for the tests of it; quick when it is there.
helm:
	@bash deploy/setup_helm.sh

# A balancer for the tests of several servers; quick when it is there.
haproxy:
	@bash deploy/setup_haproxy.sh

# The Helm chart on a real API server, which is built once (a quarter of an hour).
kubernetes: $(STAMP)
	@bash deploy/try_kubernetes.sh

# Vowpal Wabbit is a rival in one figure and nothing else needs it.
bench: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt vowpalwabbit \
	  || echo "Vowpal Wabbit could not be installed: its figure stays as it was"
	$(BIN)/python -m tests.benchmarks

# `make quality QUALITY="--sets sentences --seeds 1 --lists 8000"`: see `python -m tests.quality --help`. What was
# measured before is not measured again.
quality: $(STAMP)
	@$(BIN)/python -W ignore -m tests.quality $(or $(QUALITY),--write)

# `make results RESULTS="--sets photos --seeds 1"`: see `python -m tests.results --help`. What was measured before is not
# measured again.
results: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt metric-learn \
	  || echo "metric-learn could not be installed: its rows stay as they were"
	@$(BIN)/python -W ignore -m tests.results $(or $(RESULTS),--write)

# `make soak SOAK="--kills 1000 --only kills"`: see `python -m tests.soak --help`.
soak: $(STAMP)
	@$(BIN)/python -m tests.soak $(SOAK)

clean:
	rm -rf demo-run bench-run .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
