# Everything happens in .venv; each target makes what it needs, and a second call is quick.
PYTHON ?= python3
BIN := .venv/bin
TRAINING := .venv/.installed-train
INSTALLED := .venv/.installed

# `make demo` needs $(TRAINING) alone, all else what $(INSTALLED) adds.
.PHONY: help setup lock sbom browser demo test quick long pages soak kills hostile fuzz torchserve image training-image node suites check lint types promises names bench docs clean

help:
	@echo "make demo    set up, then train, measure and use a classifier on the sample data"
	@echo "make test    set up, then check the code and run the tests"
	@echo "make quick   the tests that need no training: for every save"
	@echo "make long    what is worth running before a release, one after the other (CONTRIBUTING.md)"
	@echo "make soak    run the tests N=10 times in random order on busy cores, and name those that ever failed"
	@echo "make pages   the README's and the docs' commands at full size"
	@echo "make kills   kill a training at 20 moments, and go on each time to the same end"
	@echo "make torchserve   install TorchServe into an environment of its own, and ask it with an archive of ours"
	@echo "make image   build a serving image with podman on BASE=IMAGE, and ask a container of it"
	@echo "make training-image   build a training image on BASE=IMAGE, and run a job of it as a container in a rehearsal"
	@echo "make node    install Google's packages for Node with npm, and ask the rehearsal with them"
	@echo "make suites  run public test suites against the emulator, from the checkouts in SUITES=DIRECTORY"
	@echo "make hostile ten times what a server can do for two minutes, and 10,000 bad requests"
	@echo "make fuzz    fuzz connections, bodies, manifests, CSV, JSON lines and encodings (FUZZ_S=60 seconds each)"
	@echo "make lock    write requirements/ anew from constraints.txt"
	@echo "make sbom    bills of materials (CycloneDX) of the wheel and of the serving image"
	@echo "make check   formatting, lint, types, import order, generated pages"
	@echo "make bench   the figures of the README (bench-start, bench-reading, bench-linear, bench-report, bench-training)"
	@echo "             those that take longer are called by name: bench-decisions, bench-label_errors, bench-fewshot,"
	@echo "             bench-families, bench-serving, bench-rehearsal_storage, bench-rehearsal_jobs, bench-busy"
	@echo "make docs    write the generated pages anew"
	@echo "make clean   remove the virtual environment and what runs left behind"

setup: $(INSTALLED)

# Packages by version and hash; with another Python than the locked one by version alone, as it may need others. torch has no hash:
# which build of it there is (CPU, CUDA) is the index's choice. Packages that have no wheel are built with the versions of constraints.txt.
# Compiled on every core, and not by pip on one; a package's template that is no Python is passed over, as pip does.
LOCKED := $(shell $(PYTHON) -c 'import sys; print("yes" * (sys.version_info[:2] == (3, 11)))')
PIP := PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --no-compile
HASHED := --require-hashes --no-deps --requirement

$(TRAINING): pyproject.toml constraints.txt requirements/train.txt
	$(PYTHON) -m venv .venv
ifeq ($(LOCKED),yes)
	$(PIP) $(HASHED) requirements/train.txt
	$(PIP) torch
	$(PIP) --no-deps --no-build-isolation --editable .
else
	$(PIP) --editable '.[train]'
endif
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true
	@touch $@

$(INSTALLED): $(TRAINING) requirements/dev.txt rehearsal/pyproject.toml
ifeq ($(LOCKED),yes)
	$(PIP) $(HASHED) requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation --editable ./rehearsal
else
	$(PIP) --editable ./rehearsal --editable '.[dev]'
endif
	$(BIN)/python -m pip check
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true
	@touch $@

# After a change of constraints.txt.
lock: setup
	$(BIN)/python requirements/lock.py

# Bills of materials of the wheel and of the serving image. CycloneDX's own packages are installed for this alone.
sbom: setup
	$(PIP) cyclonedx-bom==7.5.0
	$(BIN)/python requirements/sbom.py

# The pages are tested in a real browser; where there is none and nobody may install one, those tests are skipped.
browser:
	@command -v chromium chromium-browser google-chrome > /dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && \
	    { apt-get install --yes --quiet chromium || { apt-get update --quiet && apt-get install --yes --quiet chromium; }; } > /dev/null; } || \
	  echo "no Chromium here: the tests of the pages will be skipped"

demo: $(TRAINING)
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

# One thread a test process: threads that wait for each other on busy cores take ten times as long. Three processes on two
# cores: many tests wait for others that they have started (two take 25 minutes, three 16, four 17). Bytecode is kept even where the
# machine says otherwise: the tests start hundreds of processes, and each would compile Tagline anew. Those of tests/meta
# have run: they are among the checks.
test: setup
	$(MAKE) --jobs=3 check browser
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --ignore tests/meta --numprocesses 3 --dist worksteal

quick: setup
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest tests/unit tests/meta tests/golden tests/contracts -m 'not trains' --numprocesses 2

# Each by itself, in this order; the first that fails ends it.
long: kills pages hostile torchserve image training-image node

pages: setup
	TAGLINE_DOCS=full OMP_NUM_THREADS=1 $(BIN)/pytest tests/flow/test_docs.py

N ?= 10
soak: setup
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python tests/soak.py $(N)

kills: setup
	OMP_NUM_THREADS=1 TAGLINE_KILLS=20 $(BIN)/pytest tests/flow/test_resuming.py

# TorchServe wants Java 17, and an environment of its own.
TORCHSERVE := .venv-torchserve
$(TORCHSERVE)/.installed:
	$(PYTHON) -m venv $(TORCHSERVE)
	$(TORCHSERVE)/bin/python -m pip install --quiet torch==2.13.0 torchserve==0.12.0 captum pynvml nvgpu psutil pyyaml
	@touch $@

torchserve: setup $(TORCHSERVE)/.installed
	TAGLINE_TORCHSERVE=$(CURDIR)/$(TORCHSERVE)/bin/python $(BIN)/pytest tests/flow/test_other_runtimes.py -k torchserve

image: setup
	TAGLINE_IMAGE_BASE=$(or $(BASE),docker.io/library/python:3.11-slim) $(BIN)/pytest tests/flow/test_other_runtimes.py -k image

# As Cloud Build would, by podman or docker; BASE=localhost/NAME brings packages of its own for pip.
training-image: setup
	OMP_NUM_THREADS=1 TAGLINE_TRAINING_BASE=$(or $(BASE),docker.io/library/python:3.11-slim) $(BIN)/pytest tests/flow/test_training_image.py

# Node and npm are Debian's, or anybody's.
node: setup
	OMP_NUM_THREADS=1 TAGLINE_NODE=1 $(BIN)/pytest rehearsal/tests/test_node.py

# Fetches nothing: SUITES has checkouts of googleapis/python-storage and fsspec/gcsfs, SUITES_PYTHON the packages that they import.
SUITES_PYTHON ?= $(BIN)/python
suites: setup
	@test -n "$(SUITES)" || { echo "make suites SUITES=DIRECTORY, with checkouts of python-storage and gcsfs" >&2; exit 2; }
	$(BIN)/python rehearsal/suites/run.py $(SUITES) --python $(SUITES_PYTHON) --note "$(SUITES_NOTE)" --output docs/reference/suites.md

hostile: setup
	OMP_NUM_THREADS=1 TAGLINE_HOSTILE_S=120 $(BIN)/pytest tests/flow/test_hostile_clients.py tests/flow/test_full_disks.py
	$(MAKE) fuzz

# Coverage-guided, for so many seconds a target; an input that fails is kept in tests/fuzz/crashes and is a test from then on.
FUZZ_S ?= 60
fuzz: setup
	$(PIP) atheris==3.0.0
	for target in connection wire manifest csv jsonl encoding; do \
	  echo "fuzzing $$target" && $(BIN)/python tests/fuzz/fuzz.py $$target $(FUZZ_S) || exit 1; done

check: lint types promises names

lint: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: setup
	$(BIN)/mypy

promises: setup
	$(BIN)/pytest tests/meta
	$(BIN)/python docs/build.py --check

# A report, not a gate.
names: setup
	@$(BIN)/python tests/meta/report_names.py

bench: bench-start bench-reading bench-linear bench-report bench-training

bench-%: setup
	$(BIN)/python benchmarks/$*.py

docs: setup
	$(BIN)/python docs/build.py

clean:
	rm -rf .venv .venv-torchserve .mypy_cache .ruff_cache .hypothesis runs demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
