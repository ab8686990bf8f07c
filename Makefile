# Two commands on a fresh machine with Python 3.10+ and make: `make run` and `make test`.
# The work is done by Python programs under tools/, so that one Makefile serves Linux and Windows.

ifeq ($(OS),Windows_NT)
    PYTHON ?= python
    VENV_PYTHON := .venv/Scripts/python.exe
else
    PYTHON ?= python3
    VENV_PYTHON := .venv/bin/python
endif

# Arguments of `dmlvk conformance` on every driver, as in: make conformance CONFORMANCE_ARGUMENTS="--sample 100"
CONFORMANCE_ARGUMENTS ?=

# How many tests `make test`, `make test-thorough` and `make test-minimal` run at a time. It is made for two cores, which wait
# for a part of the time while two tests run.
WORKERS ?= 3

# Arguments of pytest besides the configuration in pyproject.toml, as in: make test PYTEST_ARGUMENTS="-x -k slice1"; "-n 0" runs
# the tests one after the other.
PYTEST_ARGUMENTS ?=

# The checkout of an earlier version, as in: make bench-checkouts BEFORE=../before
BEFORE ?= ../before

# Arguments of `dmlvk bench`, as in: make bench BENCH_ARGUMENTS="--operator slice1 --device NVIDIA"
BENCH_ARGUMENTS ?=

# Tests with damaged files where dmlvk reads or writes a file.
DAMAGED_FILES := tests/test_files.py tests/conformance/test_files.py tests/runtime/test_tuned_paths.py
DAMAGED_FILES += tests/vulkan/test_pipeline_cache.py tests/test_surroundings.py

# The chips of `make test-compilers`, all by default, as in: make test-compilers CHIPS="intel-dg2 adreno-740"
CHIPS ?=

# Its other arguments, as in: make test-compilers COMPILERS_ARGUMENTS=--record
COMPILERS_ARGUMENTS ?=

# Arguments of `make test-windows`, as in: make test-windows WINDOWS_ARGUMENTS=--all
WINDOWS_ARGUMENTS ?=

# Arguments of the fuzzing, as in: make fuzz FUZZ_ARGUMENTS="--count 1000000 --seed 7"
FUZZ_ARGUMENTS ?=

# The checks that do not run dmlvk.
define LINT
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m tools.format_kernels --check
	$(VENV_PYTHON) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --no-logo --no-cache
	$(VENV_PYTHON) -m tools.stubs --check
	$(VENV_PYTHON) -m mypy
	$(VENV_PYTHON) -m basedpyright
	$(VENV_PYTHON) -m tools.lint_workflows
endef

.PHONY: help run bench test test-compilers test-large test-cuda test-thorough test-torch test-mutants test-pages
.PHONY: test-matrices test-models test-windows docs
.PHONY: bench-checkouts package test-minimal first-impressions
.PHONY: conformance lint format drivers kernels clean fuzz

help:
	@$(PYTHON) -m tools.bootstrap help

run: .venv/run.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	@$(VENV_PYTHON) -m dmlvk demo

bench: .venv/bench.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	$(VENV_PYTHON) -m dmlvk bench --json dmlvk-bench.json --plot dmlvk-bench.png $(BENCH_ARGUMENTS)

test: .venv/test.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	@$(PYTHON) -m tools.drivers
	$(LINT)
	$(VENV_PYTHON) -m pytest -n $(WORKERS) $(PYTEST_ARGUMENTS)

lint: .venv/test.stamp
	$(LINT)

format: .venv/test.stamp
	$(VENV_PYTHON) -m ruff check --fix --exit-zero --quiet .
	$(VENV_PYTHON) -m ruff format .
	$(VENV_PYTHON) -m tools.format_kernels

test-minimal: .venv/test.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	@$(PYTHON) -m tools.drivers
	$(VENV_PYTHON) -m tools.minimal_versions -- -n $(WORKERS) $(PYTEST_ARGUMENTS)

test-large: .venv/test.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	@$(PYTHON) -m tools.drivers
	$(VENV_PYTHON) -m pytest tests/large --every-driver $(PYTEST_ARGUMENTS)

test-cuda: export DMLVK_TEST_DEVICES ?= NVIDIA
test-cuda: .venv/test.stamp
	$(VENV_PYTHON) -m pip install --quiet "torch>=2.6" cupy-cuda13x cuda-bindings
	$(VENV_PYTHON) -m pytest tests/cuda $(PYTEST_ARGUMENTS)

test-thorough: export HYPOTHESIS_PROFILE = thorough
test-thorough: .venv/test.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	@$(PYTHON) -m tools.drivers
	$(VENV_PYTHON) -m pytest -n $(WORKERS) $(PYTEST_ARGUMENTS)

test-torch: .venv/torch.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	@$(PYTHON) -m tools.drivers
	$(VENV_PYTHON) -m pytest tests/torch --every-driver $(PYTEST_ARGUMENTS)

test-models: .venv/test.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	@$(PYTHON) -m tools.drivers
	$(VENV_PYTHON) -m pip install --quiet scikit-learn
	@$(VENV_PYTHON) -m tools.models
	$(VENV_PYTHON) -m pytest tests/models --every-driver $(PYTEST_ARGUMENTS)

test-pages: .venv/test.stamp
	@$(VENV_PYTHON) -m tools.browser
	$(VENV_PYTHON) -m pytest tests/pages $(PYTEST_ARGUMENTS)

test-mutants: .venv/test.stamp
	@$(PYTHON) -m tools.drivers
	$(VENV_PYTHON) -m tests.mutants --device llvmpipe --fetch

test-matrices: .venv/test.stamp
	@$(PYTHON) -m tools.drivers
	$(VENV_PYTHON) -m tests.matrices $(PYTEST_ARGUMENTS)

fuzz: .venv/test.stamp
	@$(PYTHON) -m tools.drivers
	$(VENV_PYTHON) -m tests.fuzz $(FUZZ_ARGUMENTS)
	$(VENV_PYTHON) -m pytest $(DAMAGED_FILES)

test-windows: .venv/test.stamp
	@$(VENV_PYTHON) -m tools.windows $(WINDOWS_ARGUMENTS) $(if $(PYTEST_ARGUMENTS),-- $(PYTEST_ARGUMENTS))

package: .venv/test.stamp
	$(VENV_PYTHON) -m tools.package

first-impressions: .venv/test.stamp
	$(VENV_PYTHON) -m tools.first_impressions

bench-checkouts: .venv/test.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	$(VENV_PYTHON) -m bench.checkouts $(BEFORE) . $(BENCH_ARGUMENTS)

docs: .venv/test.stamp
	$(VENV_PYTHON) -m tools.documentation.build

conformance: .venv/test.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	@$(VENV_PYTHON) -m tools.every_driver $(CONFORMANCE_ARGUMENTS)

test-compilers: .venv/test.stamp
	@$(PYTHON) -m tools.bootstrap vulkan
	$(VENV_PYTHON) -m tests.compilers $(if $(CHIPS),--chip "$(CHIPS)") $(COMPILERS_ARGUMENTS)

drivers:
	@$(PYTHON) -m tools.drivers

kernels:
	@$(PYTHON) -m tools.compile_kernels

clean:
	@$(PYTHON) -m tools.bootstrap clean

.venv/run.stamp: pyproject.toml
	@$(PYTHON) -m tools.bootstrap environment --extras demo --optional onnx --stamp $@

.venv/bench.stamp: pyproject.toml
	@$(PYTHON) -m tools.bootstrap environment --extras demo,bench --stamp $@

.venv/test.stamp: pyproject.toml
	@$(PYTHON) -m tools.bootstrap environment --extras demo,docs,test --stamp $@

.venv/torch.stamp: pyproject.toml
	@$(PYTHON) -m tools.bootstrap environment --extras demo,docs,test,torch --stamp $@
