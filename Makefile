# Everything a developer does here. On a fresh machine only Python, make and git are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= auto
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help check test test-long test-kube bench demo crds requirements format clean

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
