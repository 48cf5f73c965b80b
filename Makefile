# The commands of this repository. `make help` lists them.
#
# The stamps say what .venv holds. While one is newer than pyproject.toml and constraints.txt, pip is
# not called at all; when it is not, pip builds without isolation and finds every pinned
# distribution already there, so both commands also work again without a network. PySpark comes as
# source alone and is built by setuptools, which not every environment has in a version that builds wheels.

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt
STAMP_RUN := $(VENV)/.stamp-run
STAMP_SPARK := $(VENV)/.stamp-spark
STAMP_DEV := $(VENV)/.stamp-dev
GROUPS_TEST := tidy modules sim members leases lookups copies masters floors mutants e2e spark
GROUPS_MORE := lint format types docs
PARTS := unit traces conformance

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-spark test check soak install install-dev ratchet first-seeds clean
.PHONY: $(GROUPS_TEST) $(GROUPS_MORE) $(PARTS)

help:
	@echo "make demo     install, then: a cluster, a server and a master killed, every row accounted for"
	@echo "make demo-spark  the same with Spark, which needs Java: a stream of CSV files, every row read back"
	@echo "make test     install what tests need, then run them"
	@echo "make check    make test with lint, format, types and docs; prints what runs and the time of each group"
	@echo "make soak     the long groups: 1000 seeds, planted bugs on many seeds, fuzzers at length, long chaos"
	@echo "make GROUP    one group: $(GROUPS_TEST) $(GROUPS_MORE)"
	@echo "make PART     a part of modules: $(PARTS)"
	@echo "make ratchet  lower the limits on long functions and unclear words to what is reached"
	@echo "make first-seeds  draw the seeds that mutants and floors try first, after changes that moved the runs"
	@echo "make clean    remove .venv and everything generated"
	@echo "ARGS='...' is passed on: make demo ARGS='--json', make unit ARGS='-k clock'"

# ---- environment ------------------------------------------------------------------------------

# The first interpreter that starts and is new enough; PYTHON=... overrides the search.
$(BIN)/python:
	@chosen=""; \
	for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    chosen=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	  echo "no Python 3.11 or newer found; install one, or say: make PYTHON=/path/to/python3" >&2; \
	  exit 2; \
	fi; \
	$$chosen -m venv $(VENV) || { \
	  echo "$$chosen cannot make environments; install its venv package" >&2; \
	  rm -rf $(VENV); exit 2; \
	}
	@$@ -P plugins/bench/stelae_bench/interpreter.py

$(STAMP_RUN): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) hatchling editables
	$(INSTALL) --no-build-isolation --editable '.[lmdb,bench]'
	@touch $@

$(STAMP_SPARK): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) hatchling editables setuptools
	$(INSTALL) --no-build-isolation --editable '.[lmdb,bench,spark]'
	@touch $@ $(STAMP_RUN)

$(STAMP_DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) hatchling editables setuptools
	$(INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@ $(STAMP_RUN) $(STAMP_SPARK)

install: $(STAMP_RUN)
install-dev: $(STAMP_DEV)

# ---- what people run --------------------------------------------------------------------------

demo: $(STAMP_RUN)
	$(BIN)/stelae demo $(ARGS)

demo-spark: $(STAMP_SPARK)
	$(BIN)/stelae spark demo $(ARGS)

test: $(STAMP_DEV)
	$(BIN)/python .ci/check.py $(GROUPS_TEST)

check: $(STAMP_DEV)
	$(BIN)/python .ci/check.py --check

soak: $(STAMP_DEV)
	$(BIN)/python .ci/check.py --soak

$(GROUPS_TEST) $(GROUPS_MORE) $(PARTS): $(STAMP_DEV)
	$(BIN)/python .ci/check.py $@ -- $(ARGS)

ratchet: $(STAMP_DEV)
	$(BIN)/python -m tests.tidy.ratchet

first-seeds: $(STAMP_DEV)
	$(BIN)/python -m tests.sim.draw_first_seeds $(ARGS)

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find kernel plugins tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
