# Every target sets up what it needs: python3, pip and make are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help run test test-pg15 test-pooler upgrade-test pgbouncer pgpool patroni promtool chaos fuzz faketime chromium redis screenshots lint format bench docs clean

help:            ## Show this list
	@grep -E '^[a-z0-9-]+: .*##|^[a-z0-9-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group dev --editable .
	@touch $(READY)

run: $(READY)    ## Dashboard, API and worker with a few schedules, on the embedded server
	$(BIN)/evenbeat serve --app examples/schedules.py:app

test: $(READY) faketime chromium pgbouncer pgpool patroni promtool ## The whole suite, on real PostgreSQL
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --ignore tests/chaos
	$(BIN)/python -m pytest --numprocesses 2 tests/chaos

test-pg15: $(READY) ## The store's tests on the PostgreSQL that is installed here (Debian's is 15)
	$(BIN)/python tests/on_installed_postgres.py tests/store

upgrade-test: $(READY) ## An upgrade from the last landed schema loses nothing and ends in today's
	$(BIN)/python -m pytest tests/store/test_upgrade.py

chaos: $(READY) faketime patroni ## The long runs: real kills, outages and fail-overs, default settings, full sizes
	EVENBEAT_CHAOS=full $(BIN)/python -m pytest tests/chaos -s --timeout=900

fuzz: $(READY)   ## The long runs of strangers' requests: 40,000 malformed ones, and thousands by the OpenAPI document in each role
	EVENBEAT_FUZZ=full $(BIN)/python -m pytest tests/acceptance/test_malformed_requests.py -s --timeout=1800
	EVENBEAT_OPENAPI=full $(BIN)/python -m pytest tests/api/test_openapi.py -s --timeout=3600

faketime:        ## A wrong clock for the chaos tests, where Debian's package can be had
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || (apt-get update -q && apt-get install -y -q faketime) >/dev/null 2>&1 || true

pgbouncer:       ## The pooler for the store's tests: Debian's own, where it is missing
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || (apt-get update -q && apt-get install -y -q --no-install-recommends pgbouncer) >/dev/null 2>&1 || echo "PgBouncer is missing: its tests are skipped."

pgpool:          ## The other pooler for the store's tests: Debian's own, where it is missing
	@command -v pgpool >/dev/null || [ -x /usr/sbin/pgpool ] || (apt-get update -q && apt-get install -y -q --no-install-recommends pgpool2) >/dev/null 2>&1 || echo "Pgpool is missing: its tests are skipped."

patroni:         ## A cluster for the fail-over tests (Patroni, etcd, HAProxy, PostgreSQL): Debian's own, where it is missing
	@(command -v patroni && command -v etcd && [ -x /usr/sbin/haproxy ] && ls /usr/lib/postgresql/*/bin/initdb) >/dev/null 2>&1 || (apt-get update -q && apt-get install -y -q --no-install-recommends patroni etcd-server haproxy postgresql iproute2) >/dev/null 2>&1 || echo "Patroni, etcd, HAProxy or PostgreSQL is missing: the fail-over tests are skipped."

promtool:        ## Prometheus' tool for the test of its rules: Debian's own, where it is missing
	@command -v promtool >/dev/null || (apt-get update -q && apt-get install -y -q --no-install-recommends prometheus) >/dev/null 2>&1 || echo "promtool is missing: one test of the Prometheus rules is skipped."

test-pooler: $(READY) pgbouncer ## The tests of store and engine through PgBouncer in transaction mode
	EVENBEAT_TEST_POOLER=1 $(BIN)/python -m pytest --numprocesses 2 tests/store tests/engine

chromium:        ## The browser for the dashboard's tests: Debian's own, where it is missing
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || [ -n "$$EVENBEAT_TEST_CHROMIUM" ] || (apt-get update -q && apt-get install -y -q --no-install-recommends chromium) >/dev/null || echo "Chromium is missing: the dashboard's tests will fail. Name one in EVENBEAT_TEST_CHROMIUM."

redis:           ## A Redis server for the peers that need one: Debian's own, where it is missing
	@command -v redis-server >/dev/null || (apt-get update -q && apt-get install -y -q --no-install-recommends redis-server) >/dev/null 2>&1 || echo "redis-server is missing: the peers that need it are left out."

screenshots: $(READY) chromium ## Take the pictures in docs/images anew
	PYTHONPATH=tests $(BIN)/python tests/dashboard/screenshots.py

lint: $(READY)   ## Format, lint, types (of the documents' examples too), direction of imports, names
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python tests/documents.py build/documents
	$(BIN)/mypy --strict examples build/documents
	$(BIN)/pyright --pythonpath $(BIN)/python examples build/documents
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/unit/test_names.py

format: $(READY) ## Let ruff put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) redis ## Every benchmark: beside the peers, at scale, and our own parts; an hour or two
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/bulk_enqueue.py
	$(BIN)/python benchmarks/at_once.py
	$(BIN)/python benchmarks/journey.py
	$(BIN)/python benchmarks/placement.py
	$(BIN)/python benchmarks/http_create.py
	$(BIN)/python benchmarks/reads_at_scale.py
	$(BIN)/python benchmarks/pages_at_scale.py
	$(BIN)/python benchmarks/held_snapshot.py
	$(BIN)/python benchmarks/worker_log.py

docs: $(READY)   ## Write the tables that derive from the code; check that the documents name everything public
	$(BIN)/python tests/settings_docs.py
	$(BIN)/python -m pytest tests/unit/test_docs.py

clean:           ## Remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
