# Everything starts here; `make help` lists the targets. Each target does its own set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
UV_VERSION := 0.13.8
# Python caches compiled modules beside the sources; Spark's workers start cold again and again and need that.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test test-matrix simulate mutants lint bench lock wheel clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Create .venv with the locked dependencies and the compiled kernel; see that there is a Java

$(READY): requirements.lock pyproject.toml setup.py connector/records/kernels.py conf/setup.sh
	@bash conf/setup.sh $(VENV) $(UV_VERSION)
	@touch $(READY)

run: setup ## Run the main job: three racks, three executors, a million orders into Parquet, and a report
	$(PYTHON) -m streaming_app.local.demo

test: setup ## Run all tests (unit, real brokers, Spark); what needs a missing tool is skipped with its reason
	$(PYTHON) -m pytest tests/unit
	@# Ahead of the tests, so that the first download is no test's time; without a network they say what they lack.
	-@$(PYTHON) -m streaming_app.local.artifacts --tests
	$(PYTHON) -m pytest tests --ignore=tests/unit

test-matrix: setup ## Run the tests that need brokers on Kafka 3.3, 3.9 and 4.4, one after the other
	$(PYTHON) -m tests.kafka_matrix $(KAFKA_VERSIONS)

SEEDS ?= 1000
simulate: setup ## Run the fetch engine through SEEDS simulated histories of brokers and faults (default 1000)
	$(PYTHON) -m tests.model --seeds $(SEEDS) --processes 2

mutants: setup ## Plant each known bug in a copy of the engine and see that simulator or tests find it
	$(PYTHON) -m tests.mutants

lint: setup ## Check format, lint, types and import contracts
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: setup ## Compare rows per second with Spark's own source, side by side
	$(PYTHON) -m tests.benchmarks.throughput

lock: setup ## Resolve the dependencies anew into requirements.lock
	$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	  --custom-compile-command 'make lock' --all-extras --group spark --group build --group test --group lint \
	  pyproject.toml -o requirements.lock

wheel: setup ## Build the wheel for this platform into dist/
	rm -rf build/lib* build/bdist*
	$(VENV)/bin/uv build --wheel --no-build-isolation -q -o dist

clean: ## Remove what was built; keeps downloaded brokers in the user's cache
	rm -rf $(VENV) build dist target *.egg-info connector/records/*.so
