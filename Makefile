# `make demo` and `make test` set up what they need; the rest are their parts.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
FAST := tests/core tests/families tests/loop

MAKEFLAGS += --no-builtin-rules --no-print-directory
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test test-system test-floors lint smoke fast soak bench read-samples install uninstall lock clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo    a real inference server under the agent, until Ctrl-C'
	@echo 'make test    sets up and runs everything: lint, smoke, every floor of tests'
	@echo 'make lint    ruff, mypy, import-linter, codespell'
	@echo 'make fast    the floors that need no process and no socket: $(FAST)'
	@echo 'make smoke   builds the wheel and tries it in a clean environment'
	@echo 'make test-system  the floor on real systemd in containers; needs root, systemd-container and mmdebstrap'
	@echo 'make test-floors  every other floor'
	@echo 'make soak    the simulation, for long'
	@echo 'make bench   latency and cost'
	@echo 'make read-samples DIR=...   scores the reading of logs against an INDEX.tsv (see tests/families/read_samples.py)'
	@echo 'make install    for the whole host, under systemd; as root. make uninstall takes it away (PURGE=1: with its data)'
	@echo 'make lock    requirements*.lock after pyproject.toml (delete them first to move to the newest releases)'
	@echo 'make clean   removes what the others made'
	@echo 'PYTHON=python3.13 VENV=.venv-3.13 chooses another Python (3.11 or later) and where its environment lies.'

# The shell makes way for Python (exec), so that Ctrl-C reaches the demo once and only it. It ends with 0 on Ctrl-C.
demo: $(VENV)/.demo-ready
	@exec $(PY) demo/demo.py

# The floor on real systemd waits for most of its time, so lint and smoke run beside it; its words follow in one piece.
test: $(VENV)/.dev-ready
	@said=$$(mktemp) || exit; \
	$(MAKE) test-system >$$said 2>&1 & system=$$!; \
	$(MAKE) lint smoke; checks=$$?; \
	wait $$system; system=$$?; cat $$said; rm -f $$said; \
	exit $$((checks + system))
	@$(MAKE) test-floors

# What needs no process and no clock computes on one core beside the rest, which mostly waits; its words follow.
test-floors: $(VENV)/.dev-ready
	@said=$$(mktemp) || exit; \
	$(PY) -m pytest $(FAST) >$$said 2>&1 & pure=$$!; \
	$(PY) -m pytest --ignore tests/system $(addprefix --ignore ,$(FAST)); rest=$$?; \
	wait $$pure; pure=$$?; cat $$said; rm -f $$said; \
	exit $$((pure + rest))

lint: $(VENV)/.dev-ready
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet . || { echo 'Run: $(PY) -m ruff format .'; exit 1; }
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/codespell .ci agent config demo systemd tests *.md Makefile pyproject.toml

smoke: $(VENV)/.dev-ready
	@bash tests/smoke/smoke.sh $(PY)

fast: $(VENV)/.dev-ready
	@$(PY) -m pytest $(FAST)

# Both releases of Debian side by side: these tests wait for most of their time. Each one's words stay together.
test-system: $(VENV)/.dev-ready
	@said=$$(mktemp) || exit; \
	$(PY) -m pytest tests/system -k 'not trixie' >$$said 2>&1 & older=$$!; \
	$(PY) -m pytest tests/system -k trixie; newer=$$?; \
	wait $$older; older=$$?; cat $$said; rm -f $$said; \
	exit $$((older + newer))

soak: $(VENV)/.dev-ready
	@$(PY) -m pytest tests/core -m soak -s

bench: $(VENV)/.demo-ready
	@$(PY) -m tests.bench

read-samples: $(VENV)/.demo-ready
	@$(PY) -m tests.families.read_samples $(or $(DIR),$(error DIR=... is the folder with the logs and their INDEX.tsv))

# uv resolves for every supported Python at once, and writes no registry's name into the file.
UV_COMPILE = .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header pyproject.toml

# Root's: for the whole host, with systemd. Another environment than the checkout's, below /opt/gpuagent.
install:
	@PYTHON=$(PYTHON) sh systemd/install.sh

uninstall:
	@sh systemd/install.sh --remove

lock:
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip install --quiet uv
	@$(UV_COMPILE) --group build --group demo -o requirements.lock
	@$(UV_COMPILE) --group build -c requirements.lock -o requirements-install.lock
	@$(UV_COMPILE) --group build --group demo --group dev -c requirements.lock -o requirements-dev.lock
	@rm -rf .venv-lock

clean:
	@rm -rf .venv .venv-* .demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .schemathesis
	@find agent tests demo -name __pycache__ -type d -prune -exec rm -rf {} +

# -- environments: a stamp is made anew when what it was made from has changed ---------------------

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'gpuagent needs Python 3.11 or later; $(PYTHON) is '"$$($(PYTHON) -V 2>&1)"'. Try: make PYTHON=python3.13'; exit 1; }
	@echo 'Setting up $(VENV) ...'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

define INSTALL
	@echo 'Installing $< into $(VENV) ...'
	@$(PY) -m pip install --quiet --require-hashes -r $<
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@
endef

$(VENV)/.demo-ready: requirements.lock pyproject.toml | $(PY)
	$(INSTALL)

$(VENV)/.dev-ready: requirements-dev.lock pyproject.toml | $(PY)
	$(INSTALL)
	@touch $(VENV)/.demo-ready
