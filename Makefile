# Two commands do everything on a fresh machine with python3 (3.10 or later): `make demo` and
# `make test`. `make` alone lists all commands with their descriptions, the text after two hashes.
.DEFAULT_GOAL := help
PYTHON ?= python3
# The build of MLX on Linux: cpu, cuda12 or cuda13. Each has its own environment, because they
# replace each other's files.
GPU ?= cpu
VENV ?= .venv$(patsubst %,-%,$(filter-out cpu,$(GPU)))
RUN := $(VENV)/bin/python
# MLX's wheels for Linux contain the reference BLAS. An OpenBLAS that is installed replaces it in
# programs with networks.
OPENBLAS := /usr/lib/*/openblas-serial/libblas.so.3 /usr/lib/*/openblas-pthread/libblas.so.3 \
    /usr/lib64/libopenblas*.so.0
BLAS := $(firstword $(wildcard $(OPENBLAS)))
NETWORK := $(if $(BLAS),LD_PRELOAD=$(BLAS) )$(RUN)

.PHONY: help demo hair train notebooks check test test-external test-emulated test-oldest fuzz \
    lint docs dist bench clean

help: ## list these commands
	@echo "Each command sets up what it needs in $(VENV) first."
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
	    while IFS='|' read -r name text; do printf '%-22s %s\n' "$$name" "$$text"; done
	@echo "Options of a program: make demo ARGS=\"--seeds 0 1 2\", make demo ARGS=--help"
	@echo "On Linux with a GPU of NVIDIA: make demo GPU=cuda13 (or cuda12)"

# Without ensurepip, which Debian packages separately, an environment is incomplete.
.DELETE_ON_ERROR:

demo: $(VENV)/.examples ## train SegNets on digits over photographs (a minute); figure in demo/
	$(NETWORK) examples/compare_decoders.py --output demo $(ARGS)

hair: $(VENV)/.examples ## recolour hair: ARGS="photo.jpg --colour copper"; writes demo/hair/
	$(NETWORK) -m mlx_unpool_zoo hair --output demo/hair $(ARGS)

train: $(VENV)/.examples ## train a SegNet on your images: ARGS="--data FOLDER"; writes demo/train/
	$(NETWORK) -m mlx_unpool_zoo train --output demo/train $(ARGS)

notebooks: $(VENV)/.notebooks ## open the notebooks in JupyterLab
	$(NETWORK) -m jupyterlab examples/notebooks

# Two files at a time, in alphabetical order: the arrays of some tests are large, so not as many as
# there are cores.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
# The core: without kernels, programs and the site, PyTorch, random arguments, the wheel and types.
CORE := $(PARALLEL) $(foreach folder,metal cuda examples,--ignore tests/$(folder)) \
    $(foreach name,site parity porting_pytorch fuzz package typing,--ignore tests/test_$(name).py)

check: $(VENV)/.check ## the tests of the core only (20 seconds)
	$(RUN) -m pytest -q $(CORE)

test: $(VENV)/.test ## all tests but those of test-external (3 minutes)
	$(RUN) -m pytest $(PARALLEL)

test-external: $(VENV)/.external ## the tests that need PyTorch, clang, NVIDIA's compiler or Sphinx
	$(RUN) -m pytest $(PARALLEL) -m external

# The core, the first notebook and the programs in their smoke modes; Linux only.
test-emulated: $(VENV)/.test ## everything as on a Mac, on the emulated GPU (3 minutes)
	$(RUN) tests/metal/as_on_a_mac.py --all

OLDEST := $(shell sed -n 's/.*"mlx>=\([0-9.]*\);.*/\1/p' pyproject.toml)
test-oldest: ## the core with the oldest MLX that pyproject.toml allows
	$(MAKE) check VENV=.venv-oldest MLX=mlx==$(OLDEST)

# The tests that draw calls, with new ones; ARGS=--hypothesis-seed=0 draws the same ones each time.
fuzz: $(VENV)/.test ## many random calls against the reference (minutes)
	FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),20000) $(RUN) -m pytest -n 2 \
	    $(foreach name,fuzz reference formats,tests/test_$(name).py) $(ARGS)

bench: $(VENV)/.bench ## the benchmarks: compared with PyTorch and with mlx.nn, memory
	$(RUN) benchmarks/ops.py
	$(RUN) benchmarks/mlx_nn.py
	$(RUN) benchmarks/plain_mlx.py
	$(RUN) benchmarks/memory.py

lint: $(VENV)/.lint ## checks of format, style, complexity and types
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) .ci/complexity.py
	$(RUN) -m mypy

# The first page of the site is the README. Warnings are errors.
docs: $(VENV)/.docs ## build the site in site/html/
	$(RUN) -m sphinx -q -W --keep-going -c docs -d site/doctrees . site/html

dist: $(VENV)/.dist ## build the wheel and the sdist in dist/
	rm -rf dist
	$(RUN) -m build --outdir dist .
	$(RUN) -m twine check --strict dist/*

OLD_PYTHON := Python 3.10 or later is needed, for example: make demo PYTHON=python3.12
$(VENV)/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and '$(OLD_PYTHON)')"
	$(PYTHON) -m venv $(VENV)

# A marker file for each dependency group in pyproject.toml, which is installed again after a change
# there. The pip of a new environment may be older than dependency groups.
SIZE_examples = 470 MB
SIZE_check = 140 MB
SIZE_test = 800 MB
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check

$(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	@echo "Installing mlx_unpool and the group '$*' in $(VENV)$(if $(SIZE_$*), ($(SIZE_$*) on Linux))"
	@$(PIP) "pip>=25.1"
	@$(PIP) --editable ".[$(GPU)]" --group $* $(MLX)
	@touch $@

clean: ## remove the environments and what was built; demo/ stays
	rm -rf $(VENV) .venv-* build dist site docs/reference
