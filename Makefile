# pointsman: `make demo` shows it, `make test` tests it, `make help` lists the rest.
# Needs Python 3.11 to 3.13, make, and the package registries; no Docker, no PostgreSQL, no key.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

find_python = for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && { echo $$p; exit; }; done
PYTHON ?= $(shell $(find_python))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
DATA ?= ../shared/data
CASES ?= 10000
WORKERS ?= 2
SECONDS ?= 600
ARGS ?=

export POINTSMAN_DATA_DIR ?= $(CURDIR)/.pointsman

.PHONY: help setup setup-dev setup-models setup-tools demo serve test test-models test-layouts test-browser test-data test-security test-chaos soak bench bench-peers bench-page \
	check format lock \
	protos dashboards image-steps clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "pointsman needs Python 3.11, 3.12 or 3.13; name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV): on Debian and Ubuntu install python3-venv" >&2; exit 1; }

# One stamp a set of packages; a larger set holds the smaller ones.
$(VENV)/.serve: requirements/serve.txt pyproject.toml | $(BIN)/python
	@echo "installing the serving set (about 40 s the first time) ..." >&2
	@test -e $(VENV)/.dev || $(PIP) install --quiet --require-hashes --requirement requirements/serve.txt
	@$(PIP) install --quiet --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.serve
	@echo "installing what the tests need ..." >&2
	@$(PIP) install --quiet --require-hashes --requirement requirements/dev.txt
	@touch $@

$(VENV)/.models: requirements/models.txt $(VENV)/.dev
	@echo "installing sentence-transformers and a CPU build of torch where pip finds one ..." >&2
	@$(PIP) install --quiet --no-deps --require-hashes --requirement requirements/models.txt
	@$(PIP) install --quiet torch==2.13.0
	@touch $@

setup: $(VENV)/.serve ## Install what serving and the demo need (no torch).
setup-dev: $(VENV)/.dev ## Install what the tests need as well (no torch).
setup-tools: ## Get the servers that tests of deploy/ run (Prometheus, nginx), without installing them.
	@deploy/fetch.sh prometheus nginx
setup-models: $(VENV)/.models ## Install sentence-transformers and torch as well.

demo: $(VENV)/.serve ## Ingest the demo corpus and ask it questions over gRPC.
	@$(BIN)/pointsman demo $(ARGS)

serve: $(VENV)/.serve ## Start a server and print how to call it.
	@$(BIN)/pointsman serve $(ARGS)

# Where the servers cannot be had the tests that need them are skipped, and say so; under CI they fail.
test: $(VENV)/.dev ## Run the tests.
	@deploy/fetch.sh prometheus nginx || echo "make test: going on without Prometheus and nginx" >&2
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

test-models: $(VENV)/.models ## Run the tests that need sentence-transformers.
	@$(BIN)/python -m pytest -m models $(ARGS)

# The libraries want another pgvector than the gateway, so they live in an environment of their own (450 MB).
$(VENV)/layouts/.made: requirements/layouts.txt | $(BIN)/python
	@echo "installing the libraries whose tables are read ..." >&2
	@$(BIN)/python -m venv $(VENV)/layouts
	@$(VENV)/layouts/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes --requirement requirements/layouts.txt
	@touch $@

test-layouts: $(VENV)/.dev $(VENV)/layouts/.made ## Run the tests on tables made by LangChain, LlamaIndex, Haystack and Django themselves.
	@POINTSMAN_LAYOUTS_PYTHON="$(abspath $(VENV)/layouts)/bin/python" $(BIN)/python -m pytest -m layouts tests/integration/foreign $(ARGS)

# Debian's headless Chromium is unpacked into .pointsman/tools (100 MB to fetch); without it the tests are skipped, and say so.
test-browser: $(VENV)/.dev ## Run the console's tests in a real browser; screenshots go to .pointsman/artifacts/console.
	@tests/browser/fetch.sh || echo "make test-browser: going on without a browser of its own" >&2
	@$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

test-data: $(VENV)/.dev ## Run the tests over public data: make test-data DATA=DIR.
	@test -d "$(DATA)" || { echo "make test-data: no folder $(DATA); name the public data with DATA=DIR (docs/data.md tells what it holds)" >&2; exit 1; }
	@POINTSMAN_TEST_DATA="$(abspath $(DATA))" $(BIN)/python -m pytest -m data $(ARGS)

test-security: $(VENV)/.dev ## Run the sandbox's invariants over generated cases: make test-security CASES=100000.
	@POINTSMAN_SECURITY_CASES="$(CASES)" $(BIN)/python -m pytest tests/security --timeout 7200 $(ARGS)

test-chaos: $(VENV)/.dev ## Break dependencies, clients and processes while a gateway answers.
	@POINTSMAN_CHAOS_CALLS=4000 $(BIN)/python -m pytest tests/chaos -m "slow or not slow" $(ARGS)

soak: $(VENV)/.dev ## The same for long: outages, 10,000 cancelled streams, rolling restarts: make soak SECONDS=60.
	@POINTSMAN_SOAK_SECONDS="$(SECONDS)" $(BIN)/python -m pytest tests/chaos/soak.py -m "slow or not slow" -s $(ARGS)

bench: $(VENV)/.serve ## Measure: make bench ARGS=--json.
	@$(BIN)/pointsman bench $(ARGS)

# The peers want other versions than the gateway, so they live in an environment of their own (440 MB).
$(VENV)/peers/.made: requirements/peers.txt | $(BIN)/python
	@echo "installing LiteLLM and semantic-router ..." >&2
	@$(BIN)/python -m venv $(VENV)/peers
	@$(VENV)/peers/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes --requirement requirements/peers.txt
	@touch $@

bench-peers: $(VENV)/.dev $(VENV)/peers/.made ## Measure beside LiteLLM's proxy and semantic-router: make bench-peers ARGS="--out DIR".
	@$(BIN)/pointsman bench --peers $(VENV)/peers/bin/python $(ARGS)

bench-page: $(VENV)/.dev ## Make docs/speed.md and the README's table anew out of docs/evaluation/speed.
	@$(BIN)/python -m router.bench.publish

check: $(VENV)/.dev ## Lint, types, protos.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy protos/pointsman/client.py protos/generate.py router agentic standard classifier tests deploy
	@$(BIN)/buf lint protos
	@$(BIN)/buf breaking protos --against protos/released.binpb
	@$(BIN)/python protos/generate.py --check
	@$(BIN)/python -m deploy.grafana.build --check

format: $(VENV)/.dev ## Format the code.
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

protos: $(VENV)/.dev ## Make the stubs anew from the protos.
	@$(BIN)/python protos/generate.py

dashboards: $(VENV)/.dev ## Make the Grafana dashboard anew.
	@$(BIN)/python -m deploy.grafana.build

image-steps: ## Run the image's build steps in a clean folder and add up the size (downloads about 250 MB).
	@deploy/docker/steps.sh

lock: $(VENV)/.dev ## Make the lock files anew from pyproject.toml.
	@requirements/lock.sh

clean: ## Remove the virtual environment, caches and the demo's data.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .pointsman
