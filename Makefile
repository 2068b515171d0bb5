PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test test-rest test-all fuzz install lint format bench docs clean
.DEFAULT_GOAL := demo

demo: $(CORE)  ## Select prototypes from the digits data set and show what came out
	$(BIN)/uniproto demo

install: $(STAMP)  ## Build .venv with everything the tests need

# The package alone: what a demonstration needs, in less than a minute.
$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

# torch comes first and pinned, so that no other package pulls a larger build of it.
$(STAMP): $(CORE)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[compare,excel,faiss,torch,text,images,train,judge,jax,ray,docs,dev]'
	touch $@

# One core for each worker: threads beyond that only wait for each other. Compiled files are kept,
# wherever that is turned off: a worker or a program that a test starts would compile all anew.
test test-rest test-all: export OMP_NUM_THREADS := 1
test test-rest test-all: export PYTHONDONTWRITEBYTECODE :=
TEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test: $(STAMP)  ## What to run before every commit: five minutes of two cores
	$(TEST) --part quick

test-rest: $(STAMP)  ## What `make test` leaves out, but only some cells of tests with many
	$(TEST) --part rest

test-all: export UNIPROTO_NEW_DRAWS := 1

test-all: $(STAMP)  ## Every test and every cell, with random inputs drawn anew
	$(TEST)

fuzz: $(STAMP)  ## At least 10,000 random questions and damaged files; goes on with SEED=number
	$(BIN)/python -m tests.fuzz --cases $(or $(CASES),10000) --seed $(or $(SEED),1)

lint: $(STAMP)  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## Ours beside the peers, in one run
	$(BIN)/python -m pip install --quiet -c constraints.txt -r benchmarks/requirements.txt
	$(BIN)/python -m benchmarks

docs: $(STAMP)  ## The documentation as a site in site/; warnings are errors, no network is needed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
