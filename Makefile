# What a person does with this checkout. Everything lives in .venv, made by the first command.
#
#   make demo     a small GPT goes wrong at step 500, and Runwatch brings it back (under two minutes)
#   make test     the tests: units, real servers, real trainers (some seven minutes on two cores)
#   make quick    of these, the ones that take no real processes
#   make test-heavy  the rest: browsers, several ranks, other frameworks, replicas, faults
#   make test-lowest  the quick tests of core and service with the oldest versions that are allowed
#   make test-lowest-hook  the hook's quick tests and those of ranks, with the oldest PyTorch too
#   make check    formatting, lint, types, import directions, the rules' tests
#   make docs     remake docs/openapi.json and docs/reference from the code
#   make site     the documentation as a site, in build/site
#   make release  wheel and sdist in dist/, each tried in an empty environment
#   make bench    the main programs behind the figures (docs/figures.md)
#   make lock     remake constraints.txt and requirements-image.txt
#   make clean    remove .venv and caches
#
# PYTHON=/path/to/python3 chooses the interpreter. PIP_OPTIONS goes to pip as it is: on a machine
# without an NVIDIA card, --extra-index-url with PyTorch's own CPU index saves gigabytes, and
# --find-links=DIR takes wheels from a folder.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := hooks/runwatch_hooks/statistics/_one_pass.so
CAN_COMPILE := $(if $(filter 1,$(RUNWATCH_PURE)),,$(shell command -v $(firstword $(CC)) 2>/dev/null))
LOWEST := .venv-lowest
LOWEST_HOOK := .venv-lowest-hook
PIP := $(BIN)/python -m pip --disable-pip-version-check
PIP_OPTIONS ?=
IMAGE_EXTRAS := server postgres objects oncall arrow
DEMO_OPTIONS ?=
TEST_OPTIONS ?=
# Tests wait for other processes a third of their time: one worker more than there are processors. A
# file is one worker's, with the service and the browser that its tests share.
WORKERS ?= $(shell echo $$(( $$(nproc) + 1 )))
# The files come in their order, whose first folders have the longest tests: the end is soon reached
# by all workers.
SPREAD = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PYTEST = $(BIN)/python -m pytest $(SPREAD)

# Images of machines often set it. Tests start hundreds of processes, and each would compile our code
# anew: that is a quarter of the start of a service.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: again demo test quick test-heavy test-lowest test-lowest-hook check mypy pyright docs site \
    release bench lock clean install

demo: $(STAMP)
	@$(BIN)/runwatch demo $(DEMO_OPTIONS)

test: $(STAMP)
	@echo "==> Running the tests (some seven minutes on two cores)"
	@$(PYTEST) -m "not heavy" $(TEST_OPTIONS)

quick: $(STAMP)
	@echo "==> Running the quick tests"
	@$(PYTEST) -m "not slow and not heavy" $(TEST_OPTIONS)

test-heavy: $(STAMP)
	@echo "==> Running the heavy tests: browsers, several ranks, frameworks, replicas, faults"
	@$(PYTEST) -m heavy $(TEST_OPTIONS)

# Without torch, as a service is installed; without a store of objects, whose tests bring a server.
test-lowest: $(LOWEST)/.installed
	@echo "==> Running the quick tests of core and service with the oldest versions that are allowed"
	@$(LOWEST)/bin/python -m pytest $(SPREAD) -m "not slow and not heavy" tests/core tests/server \
	    --hypothesis-profile=repeated --ignore-glob='*objects*' \
	    --ignore=tests/server/telemetry/packs $(TEST_OPTIONS)

# Without other people's frameworks, and of several ranks DDP: FSDP2 of torch 2.6 needs a device.
test-lowest-hook: $(LOWEST_HOOK)/.installed
	@echo "==> Running the hook's quick tests with the oldest versions that are allowed"
	@$(LOWEST_HOOK)/bin/python -m pytest $(SPREAD) -m "not slow and not heavy" tests/hooks \
	    --ignore=tests/hooks/adapters $(TEST_OPTIONS)
	@echo "==> Running the tests of several ranks with them"
	@$(LOWEST_HOOK)/bin/python -m pytest tests/hooks/ranks/test_exchange.py \
	    tests/hooks/ranks/test_signal_handlers.py $(TEST_OPTIONS)

check: $(STAMP)
	@echo "==> Formatting and lint (ruff)"
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@echo "==> Import directions (import-linter)"
	@$(BIN)/lint-imports --no-logo
	@echo "==> Types (mypy and pyright side by side; both strict)"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target mypy pyright
	@echo "==> The built-in rules' own tests"
	@$(BIN)/runwatch rules test tests/rules/*.yaml
	@$(MAKE) --no-print-directory site
	@echo "==> All checks passed"

mypy pyright: $(STAMP)
	@$(BIN)/$@ $(if $(filter pyright,$@),--warnings)

docs: $(STAMP)
	@$(BIN)/python -m tests.house.interface
	@$(BIN)/python -m tests.house.reference

site: $(STAMP)
	@echo "==> The documentation as a site (mkdocs, strict): build/site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

release: $(STAMP)
	@echo "==> Trying what would be published, in empty environments"
	@$(BIN)/python -m pytest -q tests/house/test_release.py tests/house/test_version.py
	@rm -rf dist && $(BIN)/python -m hatchling build -d dist
	@echo "==> dist/ holds the sdist and the wheel"

bench: $(STAMP)
	@$(BIN)/python -m benchmarks.hook_overhead
	@$(BIN)/python -m benchmarks.hook_overhead --model small --seconds 60 --threads 1
	@$(BIN)/python -m benchmarks.hook_budget --threads 1
	@$(BIN)/python -m benchmarks.hook_flat
	@$(BIN)/python -m benchmarks.service_killed
	@$(BIN)/python -m benchmarks.ingest
	@$(BIN)/python -m benchmarks.command_latency
	@$(BIN)/python -m benchmarks.frame_cost
	@$(BIN)/python -m benchmarks.rules

install: $(STAMP)

# The first interpreter that is new enough and can make a virtual environment. The hook's compiled
# file is made with it: again if its source has changed, or if it is missing and could be made.
$(STAMP): pyproject.toml constraints.txt watchdog/runwatch/__init__.py hatch_build.py \
    $(COMPILED:_one_pass.so=one_pass.c) $(COMPILED:_one_pass.so=gradient_sums.py) \
    $(if $(CAN_COMPILE),$(if $(wildcard $(COMPILED)),,again))
	@set -eu; \
	if [ ! -x $(BIN)/python ]; then \
	    python=; \
	    for candidate in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	        if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	        then python=$$candidate; break; fi; \
	    done; \
	    if [ -z "$$python" ]; then \
	        echo "Runwatch needs Python 3.11 or later, and found none." >&2; \
	        echo "On Debian or Ubuntu: sudo apt-get install python3 python3-venv" >&2; \
	        exit 1; \
	    fi; \
	    if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	        version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	        echo "$$python cannot make virtual environments: its venv module is missing." >&2; \
	        echo "On Debian or Ubuntu: sudo apt-get install python$$version-venv" >&2; \
	        exit 1; \
	    fi; \
	    echo "==> Making $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV); \
	fi
	@echo "==> Installing pinned versions into $(VENV): PyTorch, the service, the tools."
	@echo "    The first time this takes some minutes, nearly all of them for PyTorch."
	@$(PIP) install --quiet --progress-bar on $(PIP_OPTIONS) -c constraints.txt -e '.[server,dev]'
	@touch $@
	@echo "==> Installed"

again:

# With the interpreter of the other one.
$(LOWEST)/.installed: $(STAMP) constraints-lowest.txt
	@echo "==> Installing the oldest versions that are allowed into $(LOWEST)"
	@$(BIN)/python -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet --progress-bar on \
	    $(PIP_OPTIONS) -c constraints-lowest.txt -e '.[server,postgres,arrow,oncall]' \
	    $$(grep -E '^(hypothesis|pytest|pytest-xdist)==' constraints.txt)
	@touch $@

# By default PyTorch of this age is its CUDA build: 3.1 GB to download, 5.3 GB in the folder.
$(LOWEST_HOOK)/.installed: $(STAMP) constraints-lowest.txt
	@echo "==> Installing the oldest versions that are allowed, PyTorch too, into $(LOWEST_HOOK)"
	@$(BIN)/python -m venv --clear $(LOWEST_HOOK)
	@$(LOWEST_HOOK)/bin/python -m pip --disable-pip-version-check install --quiet --no-compile \
	    $(PIP_OPTIONS) -c constraints-lowest.txt -e '.[server,postgres,arrow,torch]' \
	    $$(grep -E '^(hypothesis|pytest|pytest-xdist|torchdata)==' constraints.txt)
	@touch $@

# Resolves afresh. What PyTorch pins by itself (its CUDA libraries) and the suffix of a local build are
# left out, so that the registry's PyTorch and a local wheel both satisfy the file. Triton goes with
# PyTorch: it is the version that PyTorch for CUDA wants, whichever build the lock is made with. The
# image's file is resolved for the interpreter that runs this: it must be the image's Python 3.11.
lock:
	@set -eu; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	echo "==> Resolving in a fresh environment"; \
	python3 -m venv "$$folder/venv"; \
	pip="$$folder/venv/bin/python -m pip --disable-pip-version-check"; \
	$$pip install --quiet --progress-bar on $(PIP_OPTIONS) torch==2.13.0 triton==3.7.1 -e '.[server,dev]'; \
	{ sed -n '/^#/p' constraints.txt; \
	  $$pip freeze --exclude-editable | sed 's/+.*//' | grep -Ev '^(nvidia-|cuda-)'; \
	} > "$$folder/constraints.txt"; \
	cp "$$folder/constraints.txt" constraints.txt; \
	echo "==> constraints.txt: $$(grep -vc '^#' constraints.txt) versions"; \
	$$pip install --quiet --progress-bar on $(PIP_OPTIONS) pip-tools==7.6.2; \
	"$$folder/venv/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras \
	    --no-header --no-annotate --no-emit-options --pip-args='$(PIP_OPTIONS)' \
	    $(IMAGE_EXTRAS:%=--extra %) --build-deps-for wheel --constraint constraints.txt \
	    --output-file "$$folder/image.txt" pyproject.toml; \
	{ sed -n '/^#/p' requirements-image.txt; cat "$$folder/image.txt"; } > "$$folder/whole.txt"; \
	cp "$$folder/whole.txt" requirements-image.txt; \
	echo "==> requirements-image.txt: $$(grep -c '==' requirements-image.txt) versions by digest"

clean:
	rm -rf $(VENV) $(LOWEST) $(LOWEST_HOOK) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
