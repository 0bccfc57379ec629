# Everything a developer does, by name. `make` alone lists the targets.
#
# The environment in $(VENV) is made and brought up to date by itself: every target that
# needs it depends on a stamp file that is older than pyproject.toml or constraints.txt
# when the environment is stale. VENV=PATH works in another environment.

.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROTO := circinus/deploy/workers/proto/worker.proto

# One numeric thread per process: operators are timed, and worker processes share the cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.PHONY: help install demo demo-calls demo-cluster serve traces cluster cluster-stop cluster-programs cluster-test test slow bench check lint types layers format docs generate lock proto clean

## help: list the targets
help:
	@sed -nE 's/^## ([a-z-]+): (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# uv takes a minute where pip takes six, but reads none of pip's settings: an index that is set
# for pip is pip's to ask, and where uv reaches none, pip tries.
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
UV := $(BIN)/python -m uv pip install --python $(BIN)/python -c constraints.txt

## install: make the environment, install into it, prepare what is made once
install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: PYTHON=PATH make ..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -q uv
	$(if $(PIP_INDEX_URL)$(PIP_EXTRA_INDEX_URL),,$(UV) -e '.[dev]' ||) $(PIP) -e '.[dev]'
	$(BIN)/circinus prepare digits
	touch $@

## demo: queries compete for three tiers, while a link thins and machines go
demo: $(STAMP)
	$(BIN)/circinus demo

## serve: run the service on this machine
serve: $(STAMP)
	$(BIN)/circinus serve

# A trace that is there is left alone, one that was cut off goes on; TRACES=DIR puts them elsewhere.
TRACES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/circinus/traces
NEW_TRACE = $(BIN)/circinus study trace --seed 0 --out $(@D)

## traces: measure the built-in pipelines completely, for studies to replay (half an hour)
traces: $(patsubst %,$(TRACES)/%/trace.npz,digits retrieval ocr tracking speech digits-stalled)

$(TRACES)/digits/trace.npz: | $(STAMP)
	$(NEW_TRACE) --inputs 120 circinus.pipelines.catalog.digits:small_pipeline

$(TRACES)/digits-stalled/trace.npz: $(TRACES)/digits/trace.npz
	$(BIN)/circinus study stall --trace $(<D) --out $(@D)

$(TRACES)/%/trace.npz: | $(STAMP)
	$(NEW_TRACE) --inputs 72 $*

# The tests of a file stay together, in their order. TEST_JOBS=0 runs all in one process.
TEST_JOBS ?= 2
# Files or folders of tests; none: all.
TESTS ?=
# A cluster that is given is one: its tests do not share it.
CLUSTER_JOBS ?= $(if $(KUBECONFIG),0,$(TEST_JOBS))

## test: everything that takes seconds, without GPU or cluster
test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow and not cluster and not gpu" --durations 40 -n $(TEST_JOBS) --dist loadfile $(TESTS)

## slow: statistical oracles and end-to-end runs
slow: $(STAMP)
	$(BIN)/python -m pytest -m "slow and not cluster and not gpu" --timeout 1200 --durations 40 -n $(TEST_JOBS) --dist loadfile $(TESTS)

## demo-calls: readers that are called at three prices, or rented: planned, served, billed
demo-calls: $(STAMP)
	$(BIN)/python -m tests.calls.demonstration

# Needs root, Go, and packages of Debian: what is missing is told, with the line that installs it.
## demo-cluster: a query as an object on a throw-away cluster of real nodes, served by pods
demo-cluster: $(STAMP)
	$(BIN)/python -m tests.cluster.demonstration

## cluster: start a throw-away Kubernetes cluster on this machine, print its kubeconfig
cluster: $(STAMP)
	@$(BIN)/python -m tests.cluster start

## cluster-stop: end it
cluster-stop: $(STAMP)
	@$(BIN)/python -m tests.cluster stop

# Needs Go; the first time takes ten to fifteen minutes, on two cores.
## cluster-programs: build the programs of the throw-away cluster
cluster-programs: $(STAMP)
	$(BIN)/python -m tests.cluster.programs

# Each process of tests has a cluster of its own.
# What this machine cannot do (build, or be a node) is skipped and said;
# with CIRCINUS_CLUSTER_TESTS=required in the environment it fails.
## cluster-test: what needs a Kubernetes cluster: its own, or that of KUBECONFIG
cluster-test: $(STAMP)
	-$(BIN)/python -m tests.cluster.programs
	$(BIN)/python -m pytest -m "cluster and not gpu" --timeout 1200 --durations 40 -n $(CLUSTER_JOBS) --dist loadfile $(TESTS)

## bench: time the hot paths
bench: $(STAMP)
	$(BIN)/python -m pytest benchmarks --benchmark-only

## check: what must pass before a merge (lint, types, layers, test)
check: lint types layers test

## lint: style, bug patterns and format
lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

## types: mypy, strict
types: $(STAMP)
	$(BIN)/mypy

## layers: who may import whom
layers: $(STAMP)
	$(BIN)/lint-imports

## format: rewrite files in house format
format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Writes to a scratch file first, so that a resolution that fails leaves the lock alone.
# An existing pin is kept unless a range refuses it; LOCK_FLAGS=--upgrade takes the newest.
## docs: the pages and the reference as a site, in build/site
docs: $(STAMP)
	$(BIN)/python -m mkdocs build

## generate: make the schema of query files and the definition of PipelineQuery anew
generate: $(STAMP)
	$(BIN)/circinus validate --schema > docs/query.schema.json
	$(BIN)/circinus operator --definition > deploy/chart/files/crds/pipelinequery.yaml

## lock: resolve pyproject.toml again and write constraints.txt
lock:
	test -x $(BIN)/pip-compile || { test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); \
	    $(BIN)/python -m pip install --disable-pip-version-check 'pip-tools>=7.5,<8'; }
	set -euo pipefail; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	test ! -f constraints.txt || cp constraints.txt "$$scratch/constraints.txt"; \
	$(BIN)/pip-compile --quiet --all-extras --strip-extras --no-annotate --no-header \
	    --no-emit-options $(LOCK_FLAGS) --output-file "$$scratch/constraints.txt" pyproject.toml; \
	{ printf '%s\n' '# What the project was tested with: exact versions, for Python 3.11 on Linux.' \
	    '# pip takes it as constraints (-c), so only what is needed is installed.' \
	    '# Made by `make lock` from pyproject.toml; do not edit by hand.'; \
	  grep -E '^[A-Za-z0-9]' "$$scratch/constraints.txt" | grep -v '^circinus '; } > "$$scratch/new"; \
	cp "$$scratch/new" constraints.txt

## proto: generate the gRPC code of the workers
proto: $(STAMP)
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. $(PROTO)

## clean: remove caches, builds and the environment
clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks build dist *.egg-info
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	test ! -f $(VENV)/pyvenv.cfg || rm -rf $(VENV)
