# Everything a developer does here. On a fresh machine only Python, make and git are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q
JOBS ?= auto
# Tests of processes wait for them a fifth of the time: others use the cores meanwhile.
TEST_JOBS := $(if $(filter auto,$(JOBS)),$(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2 2>/dev/null || echo auto),$(JOBS))
EXAMPLES ?= search
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help install quick coverage release check test test-long test-kube test-node runsc bench bench-kube bench-parts demo tour crds sync reference requirements format clean

help: ## what there is to do
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## what a user needs: the `sandpool` command and package, in .venv

$(INSTALLED): requirements/runtime.txt requirements/build.txt pyproject.toml
	@echo "installing into $(VENV), once ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(READY): $(INSTALLED) requirements/dev.txt
	@echo "installing what tests and checks need, once ..." >&2
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

check: $(READY) ## formatter, linter, strict types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

quick: $(READY) ## before each commit, in under a minute: format, lint, types, unit tests of what changed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/quick.py

format: $(READY) ## let the formatter and linter repair what they can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Tests start the product hundreds of times. Where the environment forbids to keep compiled modules, each start would compile them all again.
test test-long test-kube test-node: export PYTHONDONTWRITEBYTECODE :=

test: $(READY) ## everything but the deep searches; eight to eleven minutes on two cores
	$(PYTEST) -n $(TEST_JOBS) --dist worksteal -m "not long and not kube and not bench" $(ARGS)

test-long: $(READY) ## the deep searches: many seeds, long fuzzing, churn
	$(PYTEST) -n $(JOBS) --dist worksteal -o timeout=1200 --hypothesis-profile=$(EXAMPLES) -m "long and not kube and not bench" $(ARGS)

# What only waits for servers takes turns with others; 5 is said where no test was asked for.
KUBE := SANDPOOL_LEDGER=$(CURDIR)/.reports/ledger $(PYTEST)
test-kube: $(READY) ## the same contract on a real kube-apiserver (built once, with Go, or from KUBEBUILDER_ASSETS)
	$(BIN)/python tests/kube/build.py
	-$(BIN)/python tests/kube/build.py agent-sandbox-controller
	rm -rf .reports/ledger
	$(KUBE) -n 2 --dist loadfile -m "kube and not alone" $(ARGS) || [ $$? = 5 ]
	$(KUBE) -m "kube and alone" $(ARGS) || [ $$? = 5 ]

test-node: $(READY) ## pods that really run: a kubelet with containerd, in namespaces of its own (needs root and Go)
	PYTHONPATH=tests $(BIN)/python -m node.run $(ARGS)

coverage: $(READY) ## which lines of src/ the unit tests and the tests of controllers reach; printed, nothing is enforced
	$(PYTEST) -q -n $(JOBS) --dist worksteal --cov=sandpool --cov-report=term:skip-covered -m "not long and not kube and not bench" tests/unit tests/golden tests/machines tests/conformance tests/integration/controllers $(ARGS)

release: $(READY) ## sdist and wheel into dist/, the wheel tried in a clean environment
	$(BIN)/python tools/release.py

runsc: $(READY) ## the gVisor that tests use, built once with Go; without it they skip
	$(BIN)/python tests/kube/build.py runsc

bench: $(READY) ## the standard set on this machine, several times over, into bench/results and the documentation
	PYTHONPATH=tests $(BIN)/python -m bench.standard $(ARGS)
	$(BIN)/python -m bench.publish

bench-kube: $(READY) ## the same bursts on a real API server, beside the public Go controller and the bare writes
	$(BIN)/python tests/kube/build.py etcd kube-apiserver kube-controller-manager
	-$(BIN)/python tests/kube/build.py agent-sandbox-controller
	PYTHONPATH=tests $(BIN)/python -m bench.kube $(ARGS)
	$(BIN)/python -m bench.publish

bench-parts: $(READY) ## single parts: store, API, HTTPS, router, files, first output; prints ratios and counts
	$(BIN)/python tests/bench/run.py

demo: $(INSTALLED) ## a cluster, a warm pool, a claim, code in it, what it cannot do: in seconds, leaving nothing
	@$(BIN)/python examples/demo.py

tour: $(INSTALLED) ## more of it, command by command: kubectl, kill -9, backup, access for one namespace
	@bash examples/tour.sh

crds: $(READY) ## write what deploy/ repeats from the code: CRDs, permissions, chart pages
	$(BIN)/python tools/deploy_files.py

sync: $(READY) ## write the synchronous SDK from the asynchronous one
	$(BIN)/python tools/unasync.py

reference: $(READY) ## write what docs/reference repeats from the code: kinds, SDK, commands, reasons, Events
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/cli_reference.py

requirements: $(READY) ## pin the newest allowed versions again
	$(COMPILE) --upgrade pyproject.toml -o requirements/runtime.txt
	$(COMPILE) --upgrade pyproject.toml --extra otel --extra grpc --group dev -c requirements/runtime.txt -o requirements/dev.txt
	$(COMPILE) --group build -c requirements/dev.txt -o requirements/build.txt

clean: ## remove the environment and what tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .reports build dist
