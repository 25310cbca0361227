# Every target makes the virtual environment itself when it is absent.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DATA   ?= ../shared/data

.PHONY: help demo test test-slow lint types format clean bench-steps bench-augment bench-adult bench-memory

help:           ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## three strategies on the embedded clinic table, and a synthetic CSV
	$(BIN)/augmask demo --out augmask-demo

test: lint types $(READY)  ## lint, types and tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

test-slow: $(READY)  ## the checks that take minutes
	$(BIN)/python -m pytest -q -m slow

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## static types
	$(BIN)/mypy

format: $(READY)  ## rewrite files in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:          ## forget the environment and the demo's output
	rm -rf $(VENV) augmask-demo
