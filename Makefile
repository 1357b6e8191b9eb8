# They work from a fresh clone with Python 3.10 or newer; a C compiler adds the isplib backend.
#   make demo       compare backends on a built-in synthetic graph
#   make test       run the tests
#   make coverage   run them and say which lines they reach; takes half as long again
#   make docs       make the documentation's site in build/site, and check its links
#   make sanitize   run those of kernels under sanitizers; needs gcc
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TEMPLATES := $(wildcard cython_kernels/*.h cython_kernels/*.inc cython_kernels/families/*.inc)

.PHONY: demo test coverage docs sanitize lint readme clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/gnnbench demo

# One thread each, but a process per core: tests are small, and those about threads ask for their own number.
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

test: $(VENV)/installed
	$(TESTS)

coverage: $(VENV)/installed
	$(TESTS) --cov --cov-report=term:skip-covered

docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The tests of kernels, on a copy of the package whose kernels gcc builds with AddressSanitizer and
# UndefinedBehaviorSanitizer, less the checks of pointers that are not followed, which would double the build.
# ThreadSanitizer would report every barrier of gcc's OpenMP runtime, which it cannot see.
SANITIZED := build/sanitized
SANITIZED_MODULES := $(patsubst cython_kernels/%.pyx,$(SANITIZED)/_%.so,$(wildcard cython_kernels/*.pyx))
SANITIZER := -O1 -g1 -fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow \
    -fno-sanitize-recover=undefined --param asan-instrumentation-with-call-threshold=0
SANITIZED_TESTS ?= $(addprefix tests/,$(addsuffix .py,ops/test_kernels ops/test_grad backends/test_blocked ops/test_attention ops/test_fusedmm ops/test_pairs ops/test_random_pairs graph/test_graph graph/test_union sample/test_sample convs/test_encoders convs/test_norms convs/test_linears))

sanitize: $(VENV)/installed
	$(MAKE) --jobs=2 $(SANITIZED_MODULES)
	rm -rf $(SANITIZED)/copy
	mkdir $(SANITIZED)/copy
	cp -r gnnbench tests pyproject.toml $(SANITIZED)/copy
	rm -f $(SANITIZED)/copy/gnnbench/backends/isplib/*.so
	cp $(SANITIZED)/*.so $(SANITIZED)/copy/gnnbench/backends/isplib
	cd $(SANITIZED)/copy && OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=32 \
	    LD_PRELOAD="$$(for name in asan ubsan stdc++; do gcc -print-file-name=lib$$name.so; done | paste -sd ' ')" \
	    $(abspath $(BIN))/python -m pytest --capture=sys -k 'not torch' $(SANITIZED_TESTS)

$(SANITIZED)/_%.so: cython_kernels/%.c $(TEMPLATES)
	mkdir -p $(@D)
	gcc $(SANITIZER) -fPIC -fopenmp -shared -o $@ $< \
	    -I"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')"

lint: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(TEMPLATES)

# The measured tables and pictures of README.md and docs/, from results/.
readme: $(VENV)/installed
	$(BIN)/python -m tests.support.readme

# Python sources are used in place, so only a changed kernel, dependency or build setting installs again.
$(VENV)/installed: pyproject.toml constraints.txt $(filter-out %_fields.pxi,$(wildcard setup.py cython_kernels/*.pyx cython_kernels/*.pxi)) $(TEMPLATES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info gnnbench/backends/isplib/*.so cython_kernels/*.c cython_kernels/families.inc cython_kernels/*_fields.pxi
