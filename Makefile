# The commands of this repository. A fresh machine needs Python 3.11 or newer and make, nothing else.
#
#   make run          a broker on http://127.0.0.1:8000/mcp that publishes docs/ (another folder: DOCS=…)
#   make test         the fast tests          make test-full   also what needs Debian packages
#   make check        ruff, pyright, and whether generated files are current
#   make bench        what a cue costs, beside others (25 minutes, alone; docs/performance.md)
#   make bench-report the tables and plots of docs/performance.md, from the newest results of make bench
#   make bench-smoke  whether all of that runs and is exact (two minutes)
#   make chaos        every fault that there is, against Redis of every shape (CHAOS="--seeds 7" for another run)
#   make soak         twenty minutes of load, and whether anything grew (SOAK="--minutes 1" for a look)
#   make docs         write the generated documentation       make lock   pin the newest versions anew
#   make image-check  build the image and run its Deployment (root, Debian's buildah, podman, runc, catatonit)

PYTHON ?= python3
DOCS ?= docs
# Some two hundred tests start real servers, kill them and wait for what must follow. On a busy machine one may miss
# its ceiling, so what fails is run once more: failing twice is a fault, and the closing line counts the reruns.
# They wait more than they work, so there is one more at a time than there are cores.
PYTEST ?= -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --reruns 1
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PIP_VERSION := 26.3
INSTALL := $(PIP) install --quiet --constraint constraints.txt --build-constraint constraints.txt

.PHONY: run test test-full check docs bench bench-report bench-smoke chaos soak lock image-check
.DELETE_ON_ERROR:

run: .venv/run
	@$(BIN)/broker dev $(DOCS)

test: .venv/dev
	$(BIN)/python -m tests.clients.install
	$(BIN)/python -m tests.charts.install
	$(BIN)/pytest -m "not full" $(PYTEST)

test-full: .venv/dev
	$(BIN)/python scripts/prerequisites.py
	$(BIN)/python -m tests.clients.install
	$(BIN)/python -m tests.charts.install
	$(BIN)/pytest $(PYTEST)
	REDIS_SERVER_BIN=redis-server $(BIN)/pytest $(PYTEST) tests/store tests/process
	servers=$$($(BIN)/python -m tests.store.servers) && for server in $$servers; do \
	  REDIS_SERVER_BIN=$$server $(BIN)/pytest -m "not full" $(PYTEST) tests/store tests/replicas/test_repair.py || exit 1; done

check: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/python scripts/configuration.py --check
	$(BIN)/python scripts/metrics.py --check
	$(BIN)/python scripts/chart.py --check
	$(BIN)/python scripts/dashboard.py --check

docs: .venv/dev
	$(BIN)/python scripts/configuration.py
	$(BIN)/python scripts/metrics.py
	$(BIN)/python scripts/chart.py
	$(BIN)/python scripts/dashboard.py

bench: .venv/dev
	$(BIN)/python -m tests.bench

bench-report: .venv/dev
	$(BIN)/python -m tests.bench.report

bench-smoke: .venv/dev
	$(BIN)/python -m tests.bench --smoke

chaos: .venv/dev
	$(BIN)/python -m tests.chaos $(CHAOS)

soak: .venv/dev
	$(BIN)/python -m tests.soak $(SOAK)

image-check: .venv/dev
	scripts/image-check

lock:
	PIP_VERSION=$(PIP_VERSION) PYTHON=$(PYTHON) scripts/lock

# The stamps say which files an environment was made from: newer ones make it anew, in place.
.venv/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 …")'
	@echo "Making .venv; this takes a minute, once."
	$(PYTHON) -m venv .venv
	$(PIP) install --quiet pip==$(PIP_VERSION)
	@touch $@

.venv/run: .venv/pip pyproject.toml constraints.txt
	$(INSTALL) --editable '.[server,embedded,folder]'
	@touch $@

.venv/dev: .venv/run
	$(INSTALL) --group dev
	@touch $@
