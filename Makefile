# make fuzz   set up everything, then a short real campaign
# make test   set up everything, then all tests
# make lint   ruff and mypy

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.attnfuzz-installed
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
	"$$p" -c '$(SUPPORTED)' 2>/dev/null && { echo $$p; break; }; done)
RESULTS := campaigns/smoke-$(shell date +%Y%m%d-%H%M%S)

.DEFAULT_GOAL := help
.PHONY: help install fuzz test test-fast lint clean

help:
	@sed -n 's/^# //p' Makefile

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "attnfuzz needs Python 3.11 or 3.12: none of python3, python3.12 and python3.11 is one (make PYTHON=/path/to/python3.12 names another)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	@touch $(STAMP)

install: $(STAMP)

fuzz: $(STAMP)
	$(BIN)/attnfuzz launch configs/smoke.yaml --dir $(RESULTS)

test: $(STAMP)
	$(BIN)/python -m pytest

test-fast: $(STAMP)
	$(BIN)/python -m pytest -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
