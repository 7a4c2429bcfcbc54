# `make sweep` and `make test` are all a newcomer needs; each builds its environment on first use.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: sweep test check test-e2e test-real bench clean help

help: ## say what there is
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

sweep: $(VENV)/.installed ## measure the shipped model pair on this machine, write a report, recommend a setting
	$(VENV)/bin/avbench sweep sweeps/quickstart.yaml

test: $(VENV)/.installed-dev ## unit tests
	$(RUN) -m pytest tests/unit

test-e2e: $(VENV)/.installed-dev ## the command line on a fake engine and on the embedded one
	$(RUN) -m pytest tests/e2e

test-real: $(VENV)/.installed-dev ## real models over HTTP, a real browser; vLLM if AVBENCH_VLLM_PYTHON names it
	$(RUN) -m pytest tests/real

check: $(VENV)/.installed-dev ## lint, types, unit tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(RUN) -m pytest tests/unit

bench: $(VENV)/.installed ## speed of the embedded engine through HTTP
	rm -rf build/bench
	$(VENV)/bin/avbench sweep benchmarks/speed.yaml --results build/bench

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[reference]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[reference,dev]'
	touch $(VENV)/.installed $@

clean: ## remove the environment and caches, keep results
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
