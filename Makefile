# Two commands matter: `make demo` and `make test`. Each sets up .venv by itself on first use,
# from constraints.txt; later runs start at once.

PYTHON ?= python3
TORCH := 2.13.0
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.PHONY: help demo test soak mutants lint format bench docs pictures pins clean

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY)  ## Find a circuit in a network that reads digits, end to end.
	@$(BIN)/provable-circuits demo

test: lint  ## Lint, strict types, layering, and every test.
	$(BIN)/pytest --numprocesses=auto --maxprocesses=4 --dist=worksteal

soak: $(READY)  ## Look for enclosures that miss the truth: SECONDS=600, or QUESTIONS=20000; MUTANTS=10000.
	$(BIN)/python -m tests.enclosures.soak --seconds $(or $(SECONDS),$(if $(QUESTIONS),0,600)) \
		--questions $(or $(QUESTIONS),0) --seed $(or $(SEED),10000)
	$(BIN)/python -m tests.discover.journal.soak --kills $(or $(KILLS),50) --seed $(or $(SEED),0)
	$(BIN)/python -m tests.proof.soak --mutants $(or $(MUTANTS),10000) --seed $(or $(SEED),0)
	$(BIN)/python -m tests.soak --mutants $(or $(MUTANTS),10000) --seed $(or $(SEED),0)

mutants: $(READY)  ## Plant faults that tests must catch: all, or MUTANTS=200 SEED=1 of them.
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants --count $(or $(MUTANTS),0) --seed $(or $(SEED),0)

lint: $(READY)  ## Everything `make test` checks before it runs tests.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(READY)  ## Put imports, layout and simple lint findings right.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## Run every script in benchmarks/; each prints its ratio.
	@set -e; for script in $(wildcard benchmarks/*.py); do \
		printf '\n== %s\n' "$$script"; $(BIN)/python "$$script"; \
	done

docs: $(READY)  ## Build the documentation into build/site, every warning an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/site/index.html; for its search, serve it: python3 -m http.server -d build/site"

pictures: $(READY)  ## Make the pictures of the documentation anew (takes chromium).
	$(BIN)/python docs/pictures.py

pins:  ## Renew constraints.txt: the newest of everything, for this torch.
	$(PYTHON) -m venv --clear build/pins
	echo 'torch==$(TORCH)' > build/pins/torch.txt
	build/pins/bin/pip install --quiet --constraint build/pins/torch.txt hatchling editables
	build/pins/bin/pip install --quiet --constraint build/pins/torch.txt --no-build-isolation \
		--editable '.[dev]'
	echo '# The whole environment of `make`, every extra included. Written by `make pins`.' > constraints.txt
	build/pins/bin/pip freeze --all --exclude pip --exclude-editable | sed 's/+.*//' >> constraints.txt

clean:  ## Remove the environment, caches and built files.
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks docs examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The build backend goes in first and isolation is off, so that it too is the pinned one.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is \
	needed, and $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	@echo "Setting up $(VENV) (only now, and when pyproject.toml or constraints.txt change) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --constraint constraints.txt hatchling editables
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@
