# Two commands do everything on a fresh machine with python3 (3.10 or later): `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python

comma := ,
CORE := --ignore tests/metal --ignore tests/cuda --ignore-glob "tests/test_examples*" --ignore tests/test_site.py

.PHONY: demo streets brain ecg notebooks check test test-oldest fuzz lint docs dist bench clean

demo: $(VENV)/.examples
	$(RUN) examples/segnet_digits.py

# Further programs, each with a picture in demo/.
streets: $(VENV)/.examples
	$(RUN) examples/camvid_train.py

brain: $(VENV)/.examples
	$(RUN) examples/segnet_brain.py

ecg: $(VENV)/.examples
	$(RUN) examples/segnet_ecg.py

notebooks: $(VENV)/.notebooks
	$(RUN) -m jupyterlab examples/notebooks

# The core alone, in about 20 s: no kernels, programs, site or wheel; no comparison with PyTorch, no drawn calls.
check: $(VENV)/.test
	$(RUN) -m pytest -q -n 2 --dist loadfile $(CORE) $(addprefix --ignore=tests/test_,parity.py fuzz.py package.py)

# Two files at a time: the arrays of some tests are large, so not as many as there are cores.
test: $(VENV)/.test
	$(RUN) -m pytest -n 2 --dist loadfile

# What does not depend on programs and compilers, with the oldest MLX that pyproject.toml allows.
PARITY := $(if $(CI),$(comma)parity)
OLDEST := $(shell sed -n 's/.*"mlx>=\([0-9.]*\);.*/\1/p' pyproject.toml)
test-oldest: pyproject.toml
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test$(PARITY)]" "mlx==$(OLDEST)"
	.venv-oldest/bin/python -m pytest -q $(CORE)

# The same properties as in `make test`, on calls that are drawn anew: minutes.
fuzz: $(VENV)/.test
	FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),20000) $(RUN) -m pytest tests/test_fuzz.py

# Within 10 minutes on 2 cores; tables on the screen, JSON and plots in benchmarks/results/.
bench: $(VENV)/.bench
	for question in ops floor memory scale model overhead packed traffic; do \
	    echo "== $$question" && $(RUN) benchmarks/$$question.py || exit 1; done

lint: $(VENV)/.lint
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy

# The site, in site/html/. Its first page is the README. A warning is an error.
docs: $(VENV)/.docs
	$(RUN) -m sphinx -q -W --keep-going -c docs . site/html
	cp site/html/README.html site/html/index.html

dist: $(VENV)/.dist
	rm -rf dist
	$(RUN) -m build --outdir dist .
	$(RUN) -m twine check --strict dist/*

# One mark a set of extras: it is made again when what the project asks for changes.
$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'python 3.10 or later is needed')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[$(EXTRAS)]"
	touch $@

$(VENV)/.examples: EXTRAS = examples
$(VENV)/.test: EXTRAS = examples,docs,test$(if $(CI),$(comma)parity$(comma)cuda-check)
$(VENV)/.notebooks: EXTRAS = notebooks
$(VENV)/.lint: EXTRAS = lint
$(VENV)/.docs: EXTRAS = docs
$(VENV)/.dist: EXTRAS = dist
$(VENV)/.bench: EXTRAS = bench

clean:
	rm -rf $(VENV) .venv-oldest demo build dist site
