# make demo     score a real table and print its most unusual rows
# make test     lint, types and the whole test suite
# make format   let ruff rewrite the code
# make picture  redraw the README's picture
# make clean    remove everything these commands made
#
# The first call creates .venv. TORCH_INDEX=URL looks for torch there, too: PyTorch's own index has a
# CPU build for Linux that saves gigabytes.

PYTHON ?= python3
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test format picture clean
.DEFAULT_GOAL := demo

demo: $(READY)
	@$(BIN)/tabiced demo

test: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy src
	$(BIN)/python -m pytest

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

picture: $(READY)
	$(BIN)/tabiced demo --picture docs/images/energy.png

# torch goes first and alone: pinned, so that no later requirement can pull in another build.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("tabiced needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "Creating $(VENV) (once; a few minutes, mostly torch) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing torch ..."
	@$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch==2.13.0
	@echo "Installing tabiced with all extras ..."
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation --editable '.[cli,plot,bench,test]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
