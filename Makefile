# Every target does all of its own set-up; it needs Python >= 3.11 with venv, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEEL := .wheel
SITE := site
PIP := -m pip --disable-pip-version-check -q
ROOMS := fsm participants transport controller fuzz diagrams cli
FILES := $(sort $(shell find $(ROOMS) -name '*.py' -o -name py.typed))
WORKERS ?= 2
SHARD ?= 1/1
SCRATCH ?= $(shell test -w /dev/shm && echo /dev/shm || echo $${TMPDIR:-/tmp})
PYTEST_ARGS ?=

.DEFAULT_GOAL := test
.DELETE_ON_ERROR:
.PHONY: demo test test-source test-wheel test-all bench docs lint format diagrams clean FORCE

demo: $(VENV)/installed
	@$(BIN)/quiesce demo --json

test: lint test-source test-wheel

test-source: $(VENV)/installed
	$(BIN)/python -m pytest -q -n $(WORKERS) --cov --cov-report=term $(PYTEST_ARGS)

# The same tests on what is shipped: built from a clean copy, run in a folder that holds no source of ours.
test-wheel: $(WHEEL)/ready
	cd $(WHEEL)/tree && ../venv/bin/pytest -q -n $(WORKERS) -m 'not source' -p no:cacheprovider $(PYTEST_ARGS)

# Every sweep whole, and many times the examples of the properties, on the source; the wheel is what `make test` looks at.
# A part of a sweep may take minutes on a busy machine. Roots of the sweeps lie in memory where that is possible.
# SHARD=2/3 is the second third of it, for one of three machines.
test-all: $(VENV)/installed
	HYPOTHESIS_PROFILE=thorough TMPDIR=$(SCRATCH) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --shard $(SHARD) \
	    --timeout 900 -o tmp_path_retention_policy=failed $(PYTEST_ARGS)

bench: $(VENV)/installed
	@$(BIN)/python bench/run.py

# tests/docs builds the same into a folder of its own
docs: $(VENV)/installed
	$(BIN)/python -m sphinx -W --keep-going -n -q -d $(SITE)/.doctrees docs $(SITE)
	@echo "$(SITE)/index.html"

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests $(wildcard bench/*.py docs/*.py)
	$(BIN)/lint-imports
	$(BIN)/quiesce diagram --check

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

diagrams: $(VENV)/installed
	$(BIN)/quiesce diagram --output diagrams/generated

clean:
	rm -rf $(VENV) $(WHEEL) $(SITE) build dist quiesce.egg-info .coverage .coverage.* htmlcov
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(ROOMS) tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo 'quiesce needs Python 3.11 or newer: make PYTHON=/path/to/python3.11' >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	    || { echo 'this Python cannot make virtual environments; on Debian: apt-get install python3-venv' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# A deleted file leaves a dangling link that modification times miss; the list of files does not.
$(VENV)/files: FORCE | $(BIN)/python
	@printf '%s\n' $(FILES) > $@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(VENV)/installed: pyproject.toml constraints.txt $(VENV)/files
	rm -rf build quiesce.egg-info
	$(BIN)/python $(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

$(WHEEL)/venv/installed: pyproject.toml constraints.txt | $(BIN)/python
	rm -rf $(WHEEL)/venv
	$(BIN)/python -m venv $(WHEEL)/venv
	@touch $@

# Built through the source distribution, so that what it forgets is missed; installed with what the wheel asks for.
$(WHEEL)/ready: FORCE $(VENV)/installed $(WHEEL)/venv/installed
	rm -rf $(WHEEL)/tree $(WHEEL)/dist
	mkdir -p $(WHEEL)/tree
	tar -cf - --exclude=__pycache__ $(ROOMS) tests bench docs *.toml *.txt *.md LICENSE Makefile | tar -xf - -C $(WHEEL)/tree
	$(BIN)/python -m build $(WHEEL)/tree --outdir $(WHEEL)/dist > $(WHEEL)/build.log 2>&1 || { cat $(WHEEL)/build.log >&2; exit 1; }
	$(WHEEL)/venv/bin/python $(PIP) uninstall -y quiesce 2>/dev/null
	$(WHEEL)/venv/bin/python $(PIP) install -c constraints.txt "$$(ls $(WHEEL)/dist/quiesce-*.whl)[server,test]"
	cd $(WHEEL)/tree && rm -rf $(ROOMS) build quiesce.egg-info
	@cd $(WHEEL)/tree && ../venv/bin/python -c 'import quiesce.fsm as f; assert "site-packages" in f.__file__, f.__file__'
	@touch $@

FORCE:
