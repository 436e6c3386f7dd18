# The two commands of the README: `make demo` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
ARGS ?=

# Set-up talks on stderr, so that `make -s demo ARGS='--once -o json'` prints only the demo's own words on stdout.
define install
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) 1>&2
	@$(PY) -m pip install -q --disable-pip-version-check --no-compile --require-hashes -r packaging/requirements/$(1).txt 1>&2
	@$(PY) -m pip install -q --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e . 1>&2
	@touch $@
endef

$(VENV)/.demo: packaging/requirements/local.txt pyproject.toml
	$(call install,local)

$(VENV)/.dev: packaging/requirements/dev.txt pyproject.toml
	$(call install,dev)

.PHONY: demo test lint unit test-vllm lock clean
demo: $(VENV)/.demo
	@$(VENV)/bin/yrnode demo $(ARGS)

test: lint unit

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

unit: $(VENV)/.dev
	$(PY) -m pytest $(ARGS)

lock:
	packaging/requirements/lock.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
