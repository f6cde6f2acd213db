# Everything happens in .venv; each target makes what it needs, and a second call is quick.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help setup demo test kills check bench docs clean

help:
	@echo "make demo    set up, then train, measure and use a classifier on the sample data"
	@echo "make test    set up, then check the code and run the tests"
	@echo "make kills   kill a training at 20 moments, and go on each time to the same end"
	@echo "make check   formatting, lint, types, import order, generated pages"
	@echo "make bench   the figures of the README (bench-start, bench-reading, bench-linear, bench-training)"
	@echo "             those that take hours are called by name: bench-fewshot, bench-families"
	@echo "make docs    write the generated pages anew"
	@echo "make clean   remove the virtual environment and what runs left behind"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

# One thread a test process: threads that wait for each other on busy cores take ten times as long.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2

kills: setup
	OMP_NUM_THREADS=1 TAGLINE_KILLS=20 $(BIN)/pytest tests/flow/test_resuming.py

check: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/pytest tests/meta
	$(BIN)/python docs/build.py --check

bench: bench-start bench-reading bench-linear bench-training

bench-%: setup
	$(BIN)/python benchmarks/$*.py

docs: setup
	$(BIN)/python docs/build.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
