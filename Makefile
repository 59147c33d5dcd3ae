# What a newcomer needs, and what every change must pass. Uses uv when it is there, else venv and pip.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENVIRONMENTS := $(wildcard environments/*/pyproject.toml)
OURS := $(foreach file,$(ENVIRONMENTS),-e $(dir $(file)))
STAMP := $(VENV)/.installed
# Neighbours stay on one worker, so that what a module's tests share is made once; who is done early takes from others.
SPREAD := -n auto --dist worksteal
# Bytecode of the tests is written once, by two processes, instead of being compiled by each of pytest's workers.
unexport PYTHONDONTWRITEBYTECODE
COMPILED := $(VENV)/.tests-compiled
COLLECT := $(BIN)/pytest --collect-only -n0 -p no:cacheprovider
# Of `make chaos`: what its random rounds are drawn from, and how many there are.
SEED ?= 1
ROUNDS ?= 12
CHECK_VERSION = $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "bench needs Python 3.11 or newer, and $(PYTHON) is older; say which: make setup PYTHON=python3.12" >&2; \
	rm -rf $(VENV); exit 1; }

PIP = $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt
# What pip does on one core, on all, but for tests of packages, which nobody imports; templates in packages that are no
# Python are nothing to speak of.
COMPILE = { $(BIN)/python -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib || true; }

.PHONY: help setup quickstart test test-all test-rest test-random check format bench chaos vendor pictures docs clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Pip installs what builds a package anew for each, which takes longer than all else, unless it is told that it is there.
setup: $(STAMP) ## Make the virtual environment and install bench with its environments

$(STAMP): pyproject.toml constraints.txt $(ENVIRONMENTS)
	@echo 'Installing bench and its environments into $(VENV), which takes a minute or two' >&2
	@if command -v uv >/dev/null 2>&1; then \
		test -x $(BIN)/python || uv venv -q --python $(PYTHON) $(VENV) || exit 1; \
		$(CHECK_VERSION); \
		uv pip install -q --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[dev]' $(OURS); \
	else \
		test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || exit 1; \
		$(CHECK_VERSION); \
		$(PIP) -e '.[dev]' editables && $(PIP) --no-build-isolation $(OURS) && $(COMPILE); \
	fi
	@$(BIN)/python -m compileall -q harness environments # the first command should not pay for compiling
	@touch $@

quickstart: setup ## Run a real suite: four environments, no key, no model, no network
	$(BIN)/bench run configs/eval/quickstart.toml

$(COMPILED): $(STAMP)
	@$(COLLECT) environments tests/[a-d]* >/dev/null 2>&1 & $(COLLECT) tests/[e-z]* >/dev/null 2>&1; wait; touch $@

test: setup $(COMPILED) ## Run the tests that take less than a few seconds each
	$(BIN)/pytest $(SPREAD) -m 'not slow'

test-all: setup $(COMPILED) ## Run every test
	$(BIN)/pytest $(SPREAD)

test-random: setup $(COMPILED) ## Run the tests that draw examples at random with new ones
	BENCH_RANDOM_EXAMPLES=1 $(BIN)/pytest $(SPREAD) -m hypothesis

test-rest: setup $(COMPILED) ## Run what `make test` left out: slow tests, and those that it skipped
	$(BIN)/pytest $(SPREAD) --left-out

check: setup ## Format, lint, types, shape
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pytest tests/test_shape.py

format: setup ## Rewrite the code as the formatter wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## Measure speed and memory against a bare loop; exits 1 on a miss
	$(BIN)/python -m benchmarks

vendor: ## Fetch the browser libraries of `bench view` again (needs npm)
	$(PYTHON) scripts/vendor_view.py

chaos: setup ## Kill, fill the disk, damage, resume, and report what was lost: SEED=7 ROUNDS=200 for more
	PYTHONPATH=tests/support $(BIN)/python tests/chaos --seed $(SEED) --rounds $(ROUNDS)

pictures: setup ## Take the pictures of `bench view` again (needs Chromium)
	$(BIN)/python scripts/view_pictures.py

docs: setup ## Rewrite the pages that are generated from the code
	$(BIN)/python -m harness.settings.reference_page docs/reference/settings.md

clean: ## Remove what the targets above have made (results in outputs/ stay)
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
