# make demo   set up, pre-train on the embedded data, evaluate, draw pictures
# make test   set up, check style and types, run the tests
# make lint   set up, check style and types
# make docs   set up, build the documentation site in build/docs
# make bench  measure speed and memory against peers and rewrite docs/benchmarks.md (about 20 minutes)
# make faults break runs on purpose and rewrite the table of docs/reliability.md (about an hour)
# make lock   resolve the dependencies again and rewrite requirements.lock

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 0
RUN ?= runs/demo-$(shell date +%Y%m%d-%H%M%S)

# The first of these that runs and is Python 3.11 to 3.13.
FIND_PYTHON := for p in $(PYTHON) python3 python3.13 python3.12 python3.11 python; do \
  $$p -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1 && { echo $$p; break; }; done

.PHONY: setup demo test docs bench faults lint lock clean

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@python=$$($(FIND_PYTHON)); \
	test -n "$$python" || { echo "scfs needs Python 3.11 to 3.13; give one with: make PYTHON=/path/to/python"; exit 2; }; \
	echo "Setting up $(VENV) with $$python (about 6 GB with torch; once)"; \
	$$python -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup
	$(BIN)/scfs pretrain quickstart --seed $(SEED) --run.folder $(RUN)
	$(BIN)/scfs report $(RUN)

test: setup lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

docs: setup
	$(BIN)/python -m sphinx -W --keep-going -n -E -q docs build/docs
	@echo "build/docs/index.html"

bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r benchmarks/requirements.txt
	cp benchmarks/page.md docs/benchmarks.md
	$(BIN)/scfs bench step --peers --warm_up 2 --rounds 4 --write docs/benchmarks.md
	$(BIN)/scfs bench step --peers --warm_up 1 --rounds 2 --batch_size 8 --write docs/benchmarks.md
	$(BIN)/scfs bench step --peers --warm_up 1 --rounds 2 --backbone vit_small_patch16_224 --write docs/benchmarks.md
	$(BIN)/scfs bench data --write docs/benchmarks.md
	$(BIN)/scfs bench memory --rounds 2 --write docs/benchmarks.md
	$(BIN)/scfs bench memory --batch_sizes 32 --no-released --write docs/benchmarks.md
	$(BIN)/scfs bench growth --rounds 2 --write docs/benchmarks.md
	$(BIN)/python benchmarks/scale.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/cluster.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/loops.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/busy_cores.py --write docs/benchmarks.md

faults: setup
	$(BIN)/python -m faults --write docs/reliability.md

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy docs/_ext

lock: setup
	$(BIN)/python .ci/lock.py

clean:
	rm -rf $(VENV) build dist *.egg-info
