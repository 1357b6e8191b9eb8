# Both work from a fresh clone with Python 3.10 or newer; a C compiler adds the isplib backend.
#   make demo   compare backends on a built-in synthetic graph
#   make test   run the tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint readme clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/gnnbench compare --backends pyg,pyg-sparse,isplib

# One thread each: tests are small, and those about threads ask for their own number.
test: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --cov --cov-report=term:skip-covered

lint: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# The measured table of the README, from results/*.json.
readme: $(VENV)/installed
	$(BIN)/python tests/readme.py

# Python sources are used in place, so only a changed kernel, dependency or build setting installs again.
$(VENV)/installed: pyproject.toml constraints.txt $(wildcard setup.py cython_kernels/*.pyx cython_kernels/*.pxd cython_kernels/*.pxi cython_kernels/*.h)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info gnnbench/backends/*.so cython_kernels/*.c
