# kt: `make demo` tunes the examples, `make test` runs the tests. Both need only Python 3.11 or newer.
#
#   make demo      environment, install, then tune examples/shapes.yaml on the GPU (without one: by the model of an H200)
#   make test      the tests that need no GPU, in a little over five minutes on two cores
#   make test-all  the same, and the long compile sweeps
#   make test-gpu  the tests that need a GPU
#   make check     ruff, mypy and pyright
#   make bench     tune benchmarks/bench.yaml and time the winners beside cuBLAS (needs a GPU)
#
# PYTHON=/path/to/python3.12 picks the interpreter of a new environment; DTYPE=bf16 the operands of `make bench`.

PYTHON ?= python3
VENV ?= .venv
DTYPE ?= fp32
BIN := $(VENV)/bin

.PHONY: demo test test-all test-gpu check bench format clean

demo: $(VENV)/.user
	$(BIN)/kt tune gemm --shapes examples/shapes.yaml --device auto
	@echo "next: . $(BIN)/activate; kt show-cache (the winners are in your cache, $$($(BIN)/kt cache path))"

test: $(VENV)/.dev
	$(BIN)/pytest -n auto -m "not gpu and not slow"

test-all: $(VENV)/.dev
	$(BIN)/pytest -n auto -m "not gpu"

test-gpu: $(VENV)/.baseline
	$(BIN)/pytest -m gpu tests/gpu

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.baseline
	$(BIN)/kt tune gemm --shapes benchmarks/bench.yaml --dtype $(DTYPE)
	$(BIN)/kt bench gemm --shapes benchmarks/bench.yaml --dtype $(DTYPE)

clean:
	rm -rf $(VENV) build dist *.egg-info

# Stamps: an install runs again only if pyproject.toml has changed since.
$(VENV)/.user: pyproject.toml $(VENV)/.python
	$(BIN)/python -m pip install --quiet --editable ".[cuda13]"
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.python
	$(BIN)/python -m pip install --quiet --editable ".[cuda13,dev]"
	@touch $@ $(VENV)/.user

$(VENV)/.baseline: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable ".[cuda13,dev,baseline13]"
	@touch $@

# An environment without pip (some systems split it off) is completed by the system's pip where there is one.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "kt needs Python 3.11 or newer, and '$(PYTHON)' is not; say which: make PYTHON=/path/to/python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null \
	  || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } \
	  || { rm -rf $(VENV); \
	    echo "'$(PYTHON) -m venv' cannot make an environment with pip: install the venv module of this Python" >&2; \
	    echo "(on Debian and Ubuntu: apt install python3-venv), then run make again" >&2; exit 1; }
	@touch $@
