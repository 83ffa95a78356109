# Everything a developer does here. On a fresh machine only Python, make and git are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= auto
EXAMPLES ?= search
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help check test test-long test-kube test-node runsc bench demo crds requirements format clean

help: ## what there is to do
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

check: $(READY) ## formatter, linter, strict types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY) ## let the formatter and linter repair what they can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(READY) ## everything but the deep searches; under ten minutes
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not long and not kube and not bench" $(ARGS)

test-long: $(READY) ## the deep searches: many seeds, long fuzzing, churn
	$(PYTEST) -n $(JOBS) --dist worksteal -o timeout=1200 --hypothesis-profile=$(EXAMPLES) -m "long and not kube and not bench" $(ARGS)

test-kube: $(READY) ## the same contract on a real kube-apiserver (built once, with Go, or from KUBEBUILDER_ASSETS)
	$(BIN)/python tests/kube/build.py
	$(PYTEST) -m kube $(ARGS)

test-node: $(READY) ## pods that really run: a kubelet with containerd, in namespaces of its own (needs root and Go)
	PYTHONPATH=tests $(BIN)/python -m node.run $(ARGS)

runsc: $(READY) ## the gVisor that tests use, built once with Go; without it they skip
	$(BIN)/python tests/kube/build.py runsc

bench: $(READY) ## measure; prints ratios and counts
	$(BIN)/python tests/bench/run.py

demo: $(READY) ## see what exists so far, in a throw-away directory
	@bash examples/demo.sh

crds: $(READY) ## write what deploy/ repeats from the code: CRDs, permissions, chart pages
	$(BIN)/python tools/crd_files.py
	$(BIN)/python tools/deploy_files.py

requirements: $(READY) ## pin the newest allowed versions again
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q --upgrade \
	  pyproject.toml -o requirements/runtime.txt
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q --upgrade \
	  pyproject.toml --extra otel --extra grpc --group dev -c requirements/runtime.txt -o requirements/dev.txt

clean: ## remove the environment and what tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .reports build dist
