# make run    a chat in the terminal; installs what it needs into .venv first
# make test   the tests, with what they need
# make check  everything that CI checks
# make bench  the benchmarks and the fault campaign (minutes)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: run test check lint format bench clean

run: $(VENV)/.installed
	@$(BIN)/nanobot agent

test: $(VENV)/.dev
	@command -v bwrap >/dev/null \
	    || echo "bubblewrap is not installed: only the Landlock sandbox is tested" >&2
	@$(BIN)/pytest -n auto

check: lint test

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@PYTHONPATH=.:channels $(BIN)/lint-imports

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@$(BIN)/python -m bench.all

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Standard input belongs to the chat, so nothing here may read it; progress goes to standard error.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "nanobot needs Python 3.11 or newer: make run PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) …" >&2
	@$(PYTHON) -m venv $(VENV) </dev/null >&2 \
	    || { rm -rf $(VENV); echo "Install venv first: sudo apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.installed: $(BIN)/python pyproject.toml
	@echo "Installing nanobot into $(VENV) …" >&2
	@$(PIP) install --editable . </dev/null >&2
	@touch $@

$(VENV)/.dev: $(VENV)/.installed pyproject.toml
	@echo "Installing what the tests need …" >&2
	@$(PIP) install --editable '.[dev]' </dev/null >&2
	@touch $@
