# make demo     score a real table and print its most unusual rows
# make test     lint, types and the whole test suite
# make format   let ruff rewrite the code
# make docs     run the tutorials and build the documentation in build/site, links checked
# make picture  redraw the pictures of the documents (the report's needs chromium)
# make clean    remove everything these commands made
#
# The first call creates .venv. TORCH_INDEX=URL looks for torch there, too: PyTorch's own index has a
# CPU build for Linux that saves gigabytes.

PYTHON ?= python3
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPLETE := $(VENV)/.complete
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test format docs picture clean
.DEFAULT_GOAL := demo

demo: $(READY)
	@$(BIN)/tabiced demo

test: $(COMPLETE)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy src
	$(BIN)/python -m pytest -n auto --dist loadfile

format: $(COMPLETE)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(COMPLETE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html"

picture: $(READY)
	$(BIN)/tabiced demo --picture docs/images/energy.png
	$(BIN)/tabiced prior show --seed 3 --out docs/images/prior.png
	$(BIN)/python benchmarks/generation_quality.py --picture docs/images/generation.png
	mkdir -p build
	$(BIN)/tabiced score src/tabiced/data/penguins.csv --report build/penguins.html
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1100,1000 \
		--screenshot=docs/images/report.png build/penguins.html

# torch goes first and alone: pinned, so that no later requirement can pull in another build.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("tabiced needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "Creating $(VENV) (once; a few minutes, mostly torch) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing torch ..."
	@$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch==2.13.0
	@echo "Installing tabiced ..."
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation --editable '.[cli,plot]'
	@touch $@

$(COMPLETE): $(READY)
	@echo "Installing what tests, benchmarks and documents need (once) ..."
	@$(PIP) --no-build-isolation --editable '.[cli,plot,ray,bench,foundation,docs,test]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
