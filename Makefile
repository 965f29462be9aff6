# All commands for contributors. They need python3 (3.10 or newer) with its venv module, make, and a package index, and use
# uv if it is on the path. Tests and demo use the built wheel, installed in .venv, never the checkout.

PYTHON ?= python3
RAY ?= 2.60.0
TESTS ?= tests
# Tests marked as slow run where tests are named, or with SLOW=1.
SLOW ?= $(filter-out tests,$(TESTS))
MARKS ?= $(if $(SLOW),,not slow)
# Processes that run tests: two for each of two cores, since tests of clusters wait for half of their time.
WORKERS ?= 4
ARGS ?=
# Whether the package has its compiled part: 1, 0, or if this is empty, where it can be compiled.
COMPILED ?=
# A group in pyproject.toml, and what tests need beside it: names of .ci/beside.py, or all.
GROUP ?= dev
BESIDE ?= $(if $(filter-out tests/unit% tests/insight%,$(TESTS)),all,definitions skywalking)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

ROOT := $(CURDIR)
VENV := $(ROOT)/.venv
BIN := $(VENV)/bin
JAVASCRIPT := tests/javascript
# Their names contain the version of Ray, and whether the package is compiled, so that another one is installed.
DEPENDENCIES := $(VENV)/.dependencies-ray-$(RAY)
PACKAGE := $(VENV)/.package$(COMPILED)
# With folders, whose time changes when a file is removed.
SOURCES := pyproject.toml README.md LICENSE $(wildcard .ci/*.py) $(shell find ray_tracing_hooks -name __pycache__ -prune -o -print)
# uv does not read pip's configuration: where it finds no index, pip does.
install = $(if $(shell command -v uv),uv pip install --quiet --python $(BIN)/python $(1) || )$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input $(1)
# In another folder, since Python puts the current one on the path of the programs that tests start. Bytecode is kept, so
# that not each of many processes compiles what it imports. NumPy starts no threads, which take a third of its import.
in_venv = cd $(VENV) && PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1
pytest = $(BIN)/pytest -c $(ROOT)/pyproject.toml --rootdir $(ROOT) -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

.PHONY: help demo prepare test quick lint docs reference pure sanitize matrix bench measure compare soak recordings corpus fuzz dist wheels installed clean
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(PACKAGE) ## Run a traced program on a small Ray cluster, print its summary and its trace, and write .demo/report.html
	@rm -rf .demo && $(BIN)/ray-tracing-hooks demo --output .demo
	@echo && echo "==> ray-tracing-hooks tree .demo/slow" && $(BIN)/ray-tracing-hooks tree .demo/slow
	@echo "==> Open .demo/report.html in a browser. The spans are in .demo/slow and .demo/fast, as OTLP-JSON lines"

prepare: $(PACKAGE) ## Install what `make test` needs, and run nothing
	@$(if $(BESIDE),$(BIN)/python .ci/beside.py $(BESIDE))

test: prepare ## Run the tests but the slow ones; SLOW=1 runs all, TESTS=tests/unit selects some, WORKERS=0 runs one at a time, ARGS=-x is passed to pytest
	@$(in_venv) $(pytest) $(if $(MARKS),-m "$(MARKS)") $(addprefix $(ROOT)/,$(TESTS))

# Files that take longest, most of them since they start processes.
NOT_QUICK := $(addprefix --ignore=$(ROOT)/tests/,$(addprefix unit/test_,bridge.py disk.py reentrancy.py ship.py wheels.py) $(addprefix insight/test_,larger_than_memory.py redacted.py store.py))

quick: lint ## Lint, types, unit and insight tests but those that take longest, without Ray clusters, backends or a browser
	@$(MAKE) --no-print-directory test TESTS="tests/unit tests/insight" SLOW= ARGS="--hypothesis-profile=quick $(NOT_QUICK) $(ARGS)"

has_gcc = gcc -print-file-name=libasan.so 2> /dev/null | grep -q ^/ && test -f $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
no_gcc = echo "==> There is no gcc with its sanitizers and the headers of Python: C is not checked"

# Two at a time. Ruff and mypy know what has not changed since they looked at it; the others look again after a change.
SCRIPTS := $(shell find ray_tracing_hooks/_insight $(JAVASCRIPT) -name node_modules -prune -o -name '*.[jt]s*' -print)
CHECKS := ruff prose mypy $(VENV)/.checked-scripts $(VENV)/.checked-c $(VENV)/.checked-workflows
lint: $(DEPENDENCIES) $(VENV)/.javascript ## Check style, format, types, C and workflows
	@$(MAKE) --silent --no-print-directory --jobs 2 --output-sync=target $(CHECKS)

.PHONY: ruff prose mypy
ruff:
	@echo "==> ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check .
prose:
	@echo "==> prose" && $(BIN)/python tests/helpers/prose.py
mypy:
	@echo "==> mypy" && $(BIN)/mypy

# With folders, whose time changes when a file is renamed or removed.
$(VENV)/.checked-scripts: Makefile $(VENV)/.javascript $(SCRIPTS) $(sort $(dir $(SCRIPTS)))
	@echo "==> eslint, tsc" && $(JAVASCRIPT)/node_modules/.bin/eslint --cache --cache-location $(VENV)/.eslint --max-warnings 0 -c $(JAVASCRIPT)/eslint.config.js ray_tracing_hooks $(JAVASCRIPT)
	@$(JAVASCRIPT)/node_modules/.bin/tsc -p $(JAVASCRIPT) --incremental --tsBuildInfoFile $(VENV)/.tsc.json
	@touch $@

$(VENV)/.checked-c: Makefile $(DEPENDENCIES) ray_tracing_hooks/_hotpath_source $(wildcard ray_tracing_hooks/_hotpath_source/*)
	@echo "==> C" && if $(has_gcc); then gcc -fsyntax-only -std=c99 -O2 -Wall -Wextra -Wshadow -Wconversion -Werror -I$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') ray_tracing_hooks/_hotpath_source/*.c && touch $@; else $(no_gcc); fi

$(VENV)/.checked-workflows: Makefile $(DEPENDENCIES) $(wildcard .github/workflows/*.yml .github/ISSUE_TEMPLATE/*.yml)
	@echo "==> workflows, forms" && $(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml && $(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml)) && $(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml && $(BIN)/zizmor --offline --quiet .github/workflows
	@touch $@

docs: $(DEPENDENCIES) ## Build the site in .site, with warnings as errors: links, anchors, pages without a place
	@$(call install,--group docs)
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet -b html -d $(VENV)/doctrees docs .site && echo "==> Open .site/index.html in a browser"

reference: $(PACKAGE) ## Write what is made from the code: the tables in docs/reference, and tests/unit/contract.txt
	@$(BIN)/python tests/helpers/reference.py && $(BIN)/python tests/helpers/contract.py

pure: ## Run tests of the package in pure Python, as where nothing is compiled
	@$(MAKE) --no-print-directory test COMPILED=0 TESTS="tests/unit $(addprefix tests/ray/test_,calls.py endings.py ids.py)"

# gcc's sanitizers end a program that reads or writes where it must not. Python has to be started with their library.
ASAN = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
SANITIZED = $(addprefix $(ROOT)/tests/unit/test_,compiled.py compiled_delivery.py otlp_json_calls.py spool.py recorder.py inherited.py reentrancy.py forks.py disk.py hot_path.py)

sanitize: $(PACKAGE) ## Run tests of the compiled part with AddressSanitizer and UndefinedBehaviorSanitizer, where there is gcc
	@if $(has_gcc); then rm -rf $(VENV)/sanitized && $(ASAN) CC=gcc RAY_TRACING_HOOKS_COMPILE=1 \
	  CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all" \
	  $(BIN)/python -m pip install -qq --no-deps --no-build-isolation --no-cache-dir --target $(VENV)/sanitized . && \
	  $(in_venv) $(ASAN) PYTHONMALLOC=malloc PYTHONPATH=$(VENV)/sanitized $(pytest) $(SANITIZED); else $(no_gcc); fi

# Each pair of versions has its own environment, which is kept. Conformance and shutdown tests are left out with an older Ray,
# since they take long and compare Ray with itself. GOAL=prepare only makes the environments.
GOAL ?= test
RAYS ?= 2.40.0 2.44.1 2.46.0 2.49.2 2.52.1 2.55.1 2.58.1
PYTHONS ?= 3.10 3.11 3.12 3.13
MATRIX_TESTS ?= $(patsubst %,tests/ray/test_%.py,calls context doctor examples files ids mixed other_rays rllib serve serve_scenarios train train_older train_patches tune unchanged)
MATRIX_BESIDE ?= extras data train
matrix: $(addprefix matrix-ray-,$(RAYS)) $(addprefix matrix-python-,$(PYTHONS)) ## Run tests with other versions of Ray and of Python; RAYS=2.49.2 PYTHONS=3.12 selects some
matrix-ray-%:
	@$(MAKE) --no-print-directory $(GOAL) RAY=$* VENV=$(ROOT)/.venv-ray-$* BESIDE="$(MATRIX_BESIDE)" TESTS="$(MATRIX_TESTS)" MARKS="not slow or slow(older_rays=True)"
matrix-python-%:
	@$(MAKE) --no-print-directory $(GOAL) PYTHON=python$* VENV=$(ROOT)/.venv-python$* BESIDE= TESTS="tests/unit tests/insight tests/ray/test_calls.py" MARKS="not slow"

# Apart, since ddtrace, one of the compared packages, changes pytest.
BENCHMARKS ?= logs.py instructions.py shipper_throughput.py fleet.py workers.py serve_cost.py switched_calls.py library_cost.py calls
bench: ## Measure the cost of tracing and of other hooks: calls, workers, delivery, Serve, Ray Data, training; BENCHMARKS=calls selects some
	@$(MAKE) --no-print-directory measure VENV=$(ROOT)/.venv-bench GROUP=bench BESIDE="extras data train"
measure: prepare
	@for each in $(BENCHMARKS); do ($(in_venv) $(BIN)/python $(ROOT)/tests/benchmarks/$$each $(ARGS)); done

compare: ## Compare with other hooks: effects on programs, and spans lost when processes end
	@$(MAKE) --no-print-directory measure BENCHMARKS="transparency.py durability.py" BESIDE=

soak: ## Record two million spans in half an hour while workers come and go, and check for lost spans and growth
	@$(MAKE) --no-print-directory measure BENCHMARKS=soak.py BESIDE=

recordings: prepare ## Compare what tests expect of programs with what these do on untraced clusters
	@$(in_venv) PYTHONPATH=$(ROOT)/tests/helpers $(BIN)/python $(ROOT)/tests/ray/record.py --check

corpus: prepare ## Run all programs of tests/insight/corpus, and print what the summary says of them that does not hold; ARGS="core data" selects some
	@cd tests/insight && $(BIN)/python -m corpus live $(ARGS)

fuzz: BESIDE = fuzz
fuzz: prepare ## Fuzz everything that reads untrusted bytes, a minute each; ARGS="600 segment" takes ten for one of them
	@cd $(VENV)/fuzz && PYTHONPATH=. $(BIN)/python $(ROOT)/tests/fuzz/fuzz.py $(or $(ARGS),60)

# The tools of a release have their own environment: with one of their packages, each import of Ray takes three times as long.
RELEASE := $(VENV)/release/bin
with_tools = $(BIN)/python -m venv --without-pip $(VENV)/release && $(BIN)/python -m pip --python $(RELEASE)/python install -qq --disable-pip-version-check --no-input --group release
# By the tools of the package index, and for what does not belong into a wheel.
checked = $(with_tools) && $(RELEASE)/twine check --strict dist/* && $(RELEASE)/check-wheel-contents dist/*.whl

# URL is the address of the project, and TAG the release, for the README's links on the package index.
dist: $(DEPENDENCIES) ## Build the distribution in dist and check its content; a release sets TAG=v1.2.3 URL=https://...
	@rm -rf dist && RAY_TRACING_HOOKS_COMPILE=0 PROJECT_URL=$(URL) PROJECT_TAG=$(TAG) $(BIN)/python -m hatchling build -d dist
	@$(BIN)/python tests/helpers/distribution.py dist plain $(TAG)
	@$(checked)

wheels: $(DEPENDENCIES) ## Build the wheels with the compiled part in dist, in containers with an old C library, which needs Docker
	@rm -rf dist $(VENV)/cibuildwheel && $(BIN)/python -m venv $(VENV)/cibuildwheel && $(VENV)/cibuildwheel/bin/pip install -qq cibuildwheel==4.3.5
	@PROJECT_URL=$(URL) PROJECT_TAG=$(TAG) $(VENV)/cibuildwheel/bin/cibuildwheel --output-dir dist
	@$(BIN)/python tests/helpers/distribution.py dist compiled $(TAG)
	@$(checked)

installed: $(DEPENDENCIES) ## Install what dist and wheels have built in empty environments, with each extra, use it there, and list its packages in sbom
	@$(with_tools)
	@$(BIN)/python tests/helpers/installation.py dist $(RAY) sbom

clean: ## Remove everything that make and the tools created
	rm -rf .venv .venv-* $(JAVASCRIPT)/node_modules .demo .site dist sbom .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find ray_tracing_hooks tests examples -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and f"Python 3.10 or newer is needed, {sys.executable} is {sys.version.split()[0]}; try make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) -m venv failed: see above; on Debian it needs the package python3-venv"; exit 1; }

# Instrumentations are not published for each version of the other packages, although they ask for one; they work with each.
$(DEPENDENCIES): pyproject.toml | $(BIN)/python
	@echo "==> Installing the dependencies and Ray $(RAY); this takes a minute or two the first time"
	@rm -f $(VENV)/.dependencies-* $(VENV)/.package*
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'pip>=25.1' # the first that knows groups
	@$(call install,--group $(GROUP) '.[jaeger]' 'ray==$(RAY)')
	@$(call install,--no-deps --group instrumentations)
	@touch $@

$(VENV)/.javascript: $(JAVASCRIPT)/package-lock.json | $(DEPENDENCIES)
	@$(BIN)/python .ci/beside.py node npm
	@npm ci --prefix $(JAVASCRIPT) --omit=optional --no-audit --no-fund --loglevel=error
	@touch $@

# Compiled to bytecode, as pip does and uv does not; otherwise every process compiles it if PYTHONDONTWRITEBYTECODE is set.
$(PACKAGE): export RAY_TRACING_HOOKS_COMPILE := $(COMPILED)
$(PACKAGE): $(SOURCES) $(DEPENDENCIES)
	@echo "==> Building and installing the package"
	@rm -f $(VENV)/.package*
	@$(call install,--no-deps --no-build-isolation --force-reinstall .)
	@$(BIN)/python -m compileall -q $(VENV)/lib/python3.*/site-packages/ray_tracing_hooks
	@touch $@
