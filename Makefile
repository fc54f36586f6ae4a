# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check --quiet
# Compiling all modules of all packages takes longer than compiling those that are imported.
INSTALL := $(PIP) install --no-compile

# Newest first. A candidate has to run: a version manager puts names on the path for versions it then refuses.
CANDIDATES := python3.13 python3.12 python3.11 python3
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

# The nemo-gym wheel asks for a newer Python and heavy packages that token capture does not need.
NEMO_GYM := nemo-gym==0.7.0
# Its model server, which tests start where it runs, needs Python 3.12 and the packages of test-gym.
EXTRAS := import sys; print("dev,test-gym" if sys.version_info >= (3, 12) else "dev")

# pytest's own options and paths, as in `make test ARGS="tests/test_keys.py -x"`.
ARGS ?=
WORKERS ?= auto

# torch has an environment of its own: the release that is pinned here takes no download of gigabytes under Python
# 3.11 where its CPU build is at hand, and nobody else has to have it.
TORCH_VENV := .venv-torch
TORCH_PYTHON := $(TORCH_VENV)/bin/python
TORCH_PACKAGES := torch==2.13.0 numpy safetensors hypothesis pytest pytest-asyncio pytest-timeout

# So has Ray, whose wheels are large. It is compiled: every worker of a cluster imports all of it.
RAY_VENV := .venv-ray
RAY_PYTHON := $(RAY_VENV)/bin/python
RAY_PACKAGES := pyarrow hypothesis pytest pytest-asyncio pytest-timeout

# checkov pins most of what it needs.
CHECKOV_VENV := .venv-checkov
CHECKOV_PACKAGES := checkov==3.3.30

# The built wheel, in an environment that has it instead of this folder and borrows everything else. What is
# tested is what a wheel may lose: modules, adapters, the command, stores that talk to real servers.
WHEEL := build/wheel
WHEEL_BIN := $(CURDIR)/$(WHEEL)/venv/bin
WHEEL_TESTS := cli cli_start conformance demo exports format_newer format_v1 megatron_adapter middleware \
    nemo_gym_shim nemo_gym_staging nemo_gym_tokens proxy receipts sinks staging_sinks vllm_adapter

.PHONY: help bench demo test test-slow test-ceph test-wheel test-torch test-ray docs check environments

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/demo.stamp ## Play rollouts of several processes through a bucket, and check every promise
	$(VENV)/bin/gym-objstore demo $(ARGS)

test: $(VENV)/dev.stamp ## Run every test but the slow ones, on real servers
	$(PYTHON) -m pytest -n $(WORKERS) --maxprocesses 8 -m "not slow" $(ARGS)

test-slow: $(VENV)/dev.stamp ## Run the slow tests
	$(PYTHON) -m pytest -m slow -o faulthandler_timeout=1830 $(ARGS)

test-wheel: $(VENV)/dev.stamp ## Build the wheel and run a part of the tests on it alone
	@rm -rf $(WHEEL) && mkdir -p $(WHEEL)
	$(PYTHON) -m hatchling build -t wheel -d $(WHEEL)
	@$(PYTHON) -m venv --without-pip $(WHEEL)/venv
	@$(PIP) --python $(WHEEL_BIN)/python install --no-deps --no-index --no-compile $(WHEEL)/*.whl
	@cd $(WHEEL)/venv/lib/python*/site-packages && \
	    $(abspath $(PYTHON)) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > borrowed.pth
	@cp -R docs pyproject.toml tests $(WHEEL)
	@cd $(WHEEL) && $(WHEEL_BIN)/python -P -c 'import gym_objstore as g; assert "/$(WHEEL)/venv/" in g.__file__, g.__file__'
	cd $(WHEEL) && PATH="$(WHEEL_BIN):$(abspath $(VENV))/bin:$$PATH" $(WHEEL_BIN)/python -P \
	    -m pytest -n $(WORKERS) --maxprocesses 8 -m "not slow" $(WHEEL_TESTS:%=tests/test_%.py) $(ARGS)

test-torch: $(TORCH_VENV)/torch.stamp ## Run the tests that need torch, in Python 3.11
	$(TORCH_PYTHON) -m pytest tests/torch $(ARGS)

test-ceph: $(VENV)/dev.stamp ## Run the laws of stores on Ceph (needs Debian's ceph-mon, ceph-osd and radosgw)
	$(PYTHON) -m pytest tests/ceph_suite.py $(ARGS)

test-ray: $(RAY_VENV)/ray.stamp ## Run the tests that need Ray, on a cluster on this machine
	$(RAY_PYTHON) -m pytest tests/ray $(ARGS)

bench: $(VENV)/dev.stamp ## Measure beside the raw client and other ways, and judge every target (ARGS=--quick: two minutes)
	$(PYTHON) -m benchmarks $(ARGS)

docs: $(VENV)/dev.stamp ## Build the documentation into build/docs; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --config-file docs/site/mkdocs.yml

check: docs $(VENV)/dev.stamp $(CHECKOV_VENV)/checkov.stamp ## Lint, format, types, layers, exports, documents, terraform
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(PYTHON) -m pytest -q tests/test_layers.py tests/test_exports.py tests/test_readme.py
	@if command -v terraform >/dev/null; then terraform fmt -check -recursive terraform; \
	else echo "terraform is not on the path: the format of terraform/ is not checked"; fi
	$(CHECKOV_VENV)/bin/checkov --directory terraform --framework terraform --quiet --compact --skip-download

# Beside each other, as `make -j environments`, they take half the time.
environments: $(VENV)/dev.stamp $(TORCH_VENV)/torch.stamp $(RAY_VENV)/ray.stamp $(CHECKOV_VENV)/checkov.stamp

$(PYTHON) $(RAY_PYTHON) $(CHECKOV_VENV)/bin/python: %/bin/python:
	@for candidate in $(CANDIDATES); do \
	    if $$candidate -c '$(SUITABLE)' 2>/dev/null; then \
	        echo "making $* with $$($$candidate --version)"; exec $$candidate -m venv --clear $*; \
	    fi; \
	done; \
	echo "no Python of version 3.11 or newer with its venv module was found (tried $(CANDIDATES))" >&2; exit 1

$(VENV)/demo.stamp: pyproject.toml | $(PYTHON)
	@echo "installing the package and its command line"
	@$(INSTALL) --editable '.[cli]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml Makefile .ci/ray_metadata.py | $(PYTHON)
	@echo "installing the package and everything its tests need (a minute or two)"
	@$(INSTALL) --editable ".[$$($(PYTHON) -c '$(EXTRAS)')]"
	@$(PIP) download --no-deps --python-version 3.14 --only-binary=:all: --dest $(VENV)/wheels '$(NEMO_GYM)'
	@$(INSTALL) --no-deps --ignore-requires-python $(VENV)/wheels/nemo_gym-*.whl
	@$(PYTHON) .ci/ray_metadata.py
	@touch $@ $(VENV)/demo.stamp

$(TORCH_PYTHON):
	@python3.11 -m venv --clear $(TORCH_VENV) || { echo "the tests of torch need Python 3.11" >&2; exit 1; }

$(TORCH_VENV)/torch.stamp: pyproject.toml Makefile | $(TORCH_PYTHON)
	@echo "installing the package and torch (a minute or two)"
	@$(TORCH_PYTHON) -m pip --disable-pip-version-check --quiet install --no-compile $(TORCH_PACKAGES) --editable .
	@touch $@

$(RAY_VENV)/ray.stamp: pyproject.toml Makefile | $(RAY_PYTHON)
	@echo "installing the package and Ray (a minute or two)"
	@$(RAY_PYTHON) -m pip --disable-pip-version-check --quiet install $(RAY_PACKAGES) --editable '.[ray]'
	@touch $@

$(CHECKOV_VENV)/checkov.stamp: Makefile | $(CHECKOV_VENV)/bin/python
	@echo "installing checkov (a minute)"
	@$(CHECKOV_VENV)/bin/python -m pip --disable-pip-version-check --quiet install $(CHECKOV_PACKAGES)
	@touch $@
