# One word for everything; `make` lists them. CI calls `make test` and nothing else.
# Settings of the tools stand in pyproject.toml, never here.

VERSIONS := 3.14 3.13 3.12 3.11
PY := .venv/bin/python
PYTEST = $(PY) -m pytest -q -n 2 $(if $(NO_SAMPLES),--no-samples)
# Suites of parts wait for no disk where the machine has 2 GB of memory for their files: $(IN_MEMORY) $(PYTEST) …
IN_MEMORY := $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 2000000 ] 2>/dev/null && echo TMPDIR=/dev/shm)
CODE := herdpy bookie spark_connector tests examples
PIP_FLAGS := --quiet --disable-pip-version-check --no-input
STAMP := .venv/.stamp
PROTOS := bookie/autorecovery/formats.proto bookie/ledger/ledger_metadata.proto bookie/metadata/formats.proto \
          bookie/proto/wire_v3.proto herdpy/proto/herdpy.proto

# A commit is judged by the same tests every time, the next one by others.
TURN ?= $(or $(shell git rev-list --count HEAD 2>/dev/null),0)

N ?=
SEED ?=
PLANT ?=
DIR ?=
OLD ?=
LIST ?=
runner_flags = $(if $(N),--runs $(N)) $(if $(SEED),--seed $(SEED)) $(if $(PLANT),--plant "$(PLANT)")
old_flags = $(if $(OLD),--old $(OLD))
kill_flags = $(if $(N),--rounds $(N)) $(if $(SEED),--seed $(SEED))
slt_flags = $(if $(CORPUS),--corpus "$(CORPUS)") $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(if $(STRICT),--strict) \
            $(if $(ENGINE),--engine $(ENGINE)) $(if $(ONLY),--only $(ONLY))

# A suite whose folder is still empty is skipped aloud; one that has tests has to pass them.
define suite
@if find $(1) -name 'test_*.py' 2>/dev/null | grep -q .; then set -x; $(IN_MEMORY) $(PYTEST) $(1); \
else echo "*** SKIPPED: $(1) has no tests yet"; fi
endef

define part
@begun=$$(date +%s); $(MAKE) $(1) && echo "*** make $(1): $$(($$(date +%s) - begun)) s"
endef

# Parts that keep one processor busy each, two at a time; what each has to say comes when it has ended.
define parts_beside
@printf '%s\n' $(1) | xargs -P 2 -I '{}' sh -c 'begun=$$(date +%s); \
    said=$$($(MAKE) {} 2>&1); code=$$?; echo "$$said"; \
    [ $$code -eq 0 ] && echo "*** make {}: $$(($$(date +%s) - begun)) s"'
endef

# Where a machine forbids it, each process that tests start would compile the product anew, a second of it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
.PHONY: full-disk help setup fmt lint proto types layers unit contract sql dbapi exhaustive faces check suites second-tablespace second-tablespace-sample crash crash-sample damage kill kill-server kill-staging kill-bookies kill-cluster restarts sim sim-ledger sim-recovery sim-server sim-storage fuzz fuzz-cost ends fuzz-wire integration long interrupts threads \
        findings compat pg-oracle pg-regress slt docs reference environments interpreters bare test demo cluster-demo interop soak spark spark-big spark-faults bench-wire bench-server bench-memory bench-calls bench-embedded bench-tablespaces \
        bench-ledger bench-recovery bench-herddb bench-cluster bench-network bench-neighbours bench-spark big clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the newest Python found; again only when pyproject.toml changed

$(STAMP): pyproject.toml
	@if ! $(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$(.ci/find-python $(VERSIONS)) || { \
	        echo "setup: no Python 3.11 or newer found (looked for $(VERSIONS) on PATH and in ~/.pyenv)"; \
	        exit 1; }; \
	    echo "setup: .venv with $$($$python --version)"; \
	    rm -rf .venv && "$$python" -m venv .venv; \
	fi
	@echo "setup: installing herdpy-db with its tools (the first time takes a minute)"
	@extras=dev; java -version >/dev/null 2>&1 || extras=dev,java; \
	$(PY) -m pip install $(PIP_FLAGS) -e ".[$$extras]"
	@$(PY) -m bookie.admin.zookeeper_jars || echo "setup: ZooKeeper comes from Debian's package or pyspark"
	@touch $@

fmt: setup ## format the code, mend what ruff can mend
	$(PY) -m ruff format $(CODE)
	$(PY) -m ruff check --fix $(CODE)

lint: setup ## ruff: format and rules
	$(PY) -m ruff format --check $(CODE)
	$(PY) -m ruff check $(CODE)

proto: setup ## protobuf code from the *.proto files, which tests/style compares
	$(PY) -m grpc_tools.protoc -I . --python_out=. --pyi_out=. $(PROTOS)

types: setup ## pyright, strict for the product
	$(PY) -m pyright

layers: setup ## the import rule and the house's own rules
	$(PYTEST) tests/style --ignore tests/style/test_docs.py

unit: setup ## tests of one module each, of the simulated world, of findings, of what judges kill-cluster and pg-regress, and of slt
	$(IN_MEMORY) $(PYTEST) tests/unit tests/sim tests/findings tests/kill_cluster tests/pg_regress tests/slt -m "not integration and not long" --turn $(TURN)

exhaustive: setup ## all of which `make check` and `make integration` take a third, by turn: every step, line, planted fault
	$(IN_MEMORY) $(PYTEST) tests/unit tests/sim tests/findings tests/crash tests/damage tests/integration -m "exhaustive and not long"

findings: setup ## each finding's test passes here and fails on the commit of the finding: make findings OLD=62f20b8
	$(PY) -m tests.findings $(old_flags)

contract: setup ## one suite per interface, over every implementation
	$(IN_MEMORY) $(PYTEST) tests/contract

sql: setup ## the *.test files of SQL
	$(call suite,tests/sql)

dbapi: setup ## the public DB-API suite and ours, in memory and on a directory
	$(IN_MEMORY) $(PYTEST) tests/dbapi

faces: setup ## the SQL and DB-API suites over local, tcp, grpc and a cluster of three nodes, blocking and asyncio; ON=cluster: that alone
	HERDPY_FACES=$(or $(ON),all) $(PYTEST) tests/sql tests/dbapi

second-tablespace: setup ## the suites of SQL, the DB-API and the wire, and N simulated crashes, in a tablespace beside default
	HERDPY_TEST_TABLESPACE=second $(IN_MEMORY) $(PYTEST) tests/sql tests/dbapi tests/contract/test_frame_document.py tests/contract/test_row_rules.py tests/crash/test_digest.py
	HERDPY_TEST_TABLESPACE=second $(PY) -m tests.crash --runs $(or $(N),1000) $(if $(SEED),--seed $(SEED))

second-tablespace-sample: setup ## the *.test files of SQL over TCP in a tablespace beside default
	HERDPY_TEST_TABLESPACE=second $(IN_MEMORY) $(PYTEST) tests/sql/test_files.py -k "tcp and autocommit and not async"

crash-sample: setup ## a hundred simulated crashes, a third of the planted faults, and some damaged directories
	$(IN_MEMORY) $(PYTEST) tests/crash tests/damage --turn $(TURN)

check: ## all that needs no process, disk or network of its own
	$(call part,lint)
	$(call part,types)
	$(call part,suites)

suites: ## of `make check` what pytest runs
	$(call part,layers)
	$(call part,unit)
	$(call part,contract)
	$(call part,sql)
	$(call part,dbapi)
	$(call part,crash-sample)
	$(call part,second-tablespace-sample)

crash: setup ## simulated crashes: make crash N=2000 SEED=7 PLANT=all
	$(PY) -m tests.crash $(runner_flags)

damage: setup ## directories of drawn lives, damaged: make damage N=5000 SEED=7 PLANT=all
	$(PY) -m tests.damage $(runner_flags)

sim: setup ## simulated lives of a cluster, its leaders taken over: make sim N=4000 SEED=7 PLANT=all
	$(PY) -m tests.sim.cluster $(runner_flags)

sim-ledger: setup ## simulated lives of a ledger: make sim-ledger N=10000 SEED=7 PLANT=all
	$(PY) -m tests.sim.ledger $(runner_flags)

sim-recovery: setup ## bookies lost, drained and replaced, their ledgers made whole: make sim-recovery N=3000 SEED=7 PLANT=all
	$(PY) -m tests.sim.recovery $(runner_flags)

sim-server: setup ## simulated lives of a server and its clients: make sim-server N=3000 SEED=7 PLANT=all
	$(PY) -m tests.sim.server $(runner_flags)

sim-storage: setup ## power failures in a bookie's disk: make sim-storage N=2000 SEED=7 PLANT=all
	$(PY) -m tests.sim.storage $(runner_flags)

kill: setup ## real processes under SIGKILL: make kill N=10
	$(PY) -m tests.crash.kill $(kill_flags)

full-disk: setup ## a database's whole life on tmpfs of 12, 64 and 256 MiB: make full-disk SIZES="12 64"
	$(PY) -m tests.full_disk $(if $(SIZES),--sizes $(SIZES))

restarts: setup ## a server drained and restarted under both pools: make restarts N=10
	HERDPY_RESTARTS=$(or $(N),10) $(PYTEST) --timeout 900 tests/integration/test_server_restarts.py -k drained

kill-staging: setup ## a server under SIGKILL and jobs that stage rows: make kill-staging N=100
	$(PY) -m tests.crash.kill_staging $(kill_flags)

kill-server: setup ## a server under SIGKILL and eight clients: make kill-server N=100
	$(PY) -m tests.crash.kill_server $(kill_flags)

kill-bookies: setup ## bookies killed, drained, a disk of theirs lost: make kill-bookies N=20 SEED=7
	$(PY) -m tests.kill_bookies $(kill_flags)

kill-cluster: setup ## leader, followers, bookies and ZooKeeper killed or hung under eight clients: make kill-cluster N=100 SEED=7 BOOKIES=apache
	$(PY) -m tests.kill_cluster $(kill_flags) $(if $(BOOKIES),--bookies $(BOOKIES))

fuzz-cost: setup ## what statements of any form cost, counted, never timed: make fuzz-cost N=20000 SEED=7 PLANT=all
	$(PY) -m tests.fuzz.cost $(runner_flags)

ends: setup ## how soon cancel, KILL, time-out, a closed socket and Ctrl-C end statements, alone on the machine: make ends N=5
	$(PY) -m tests.fuzz.ends --rounds $(or $(N),5)

fuzz-wire: setup ## broken messages to both servers and their clients: make fuzz-wire N=1000000 SEED=7
	$(PY) -m tests.fuzz.wire $(runner_flags)
	$(PY) -m tests.fuzz.frames $(runner_flags)
	$(PY) -m tests.fuzz.logins $(runner_flags)
	$(PY) -m tests.fuzz.grpc_calls $(runner_flags)

fuzz: setup ## every property test (hypothesis) with more examples: make fuzz N=2000
	HERDPY_EXAMPLES=$(or $(N),500) $(PYTEST) tests -m hypothesis

integration: setup ## real processes and real disks; a client in Node, where npm is
	$(PYTEST) --dist loadfile --longest-first --no-loadscope-reorder --turn $(TURN) tests/integration tests/interop/test_grpc_node.py tests/findings -m "(integration or not finding) and not long"

long: setup ## whole jobs of real processes, of half a minute and more each; ends in every phase of statements
	$(PYTEST) tests/unit tests/integration tests/findings -m long

interrupts: setup ## Ctrl-C at every line of every statement (half an hour)
	HERDPY_LINE_STRIDE=1 $(PYTEST) --timeout 3600 tests/unit/herdpy/engine/test_keyboard_interrupt.py

threads: setup ## 32 threads race for one key, 10,000 rounds: make threads N=10000
	HERDPY_ROUNDS=$(or $(N),10000) $(PYTEST) --timeout 3600 tests/integration/test_many_threads.py

compat: setup ## what an older commit left, and its driver and server with ours: make compat OLD=62f20b8
	$(PY) -m tests.compat $(old_flags)

pg-oracle: setup ## generated SQL on herdpy and on a PostgreSQL of its own: make pg-oracle N=50000 SEED=7
	@$(PY) -c 'import psycopg' 2>/dev/null || $(PY) -m pip install $(PIP_FLAGS) -e ".[bench]"
	$(PY) -m pytest -q tests/pg_oracle
	$(PY) -m tests.pg_oracle $(runner_flags)

pg-regress: setup ## PostgreSQL 15's regression SQL on herdpy and on a PostgreSQL of its own: make pg-regress CORPUS=dir FILES="boolean int4"
	@$(PY) -c 'import psycopg' 2>/dev/null || $(PY) -m pip install $(PIP_FLAGS) -e ".[bench]"
	$(PY) -m pytest -q tests/pg_regress
	$(PY) -m tests.pg_regress $(CORPUS) $(if $(FILES),--files "$(FILES)")

slt: setup ## the public sqllogictest suite: make slt CORPUS=dir SAMPLE=300000 SEED=7 STRICT=1 ONLY="select random/expr"
	$(PY) -m tests.slt $(slt_flags)

docs: setup ## run every example and every code block, check references
	$(PYTEST) tests/style/test_docs.py

reference: setup ## write docs/reference/ anew from the code
	$(PY) -m tests.style.generate_reference

environments: setup ## .venvs/ of every other Python found, for interpreters: make environments ON=3.11
	@set -e; own=$$($(PY) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in $(or $(ON),$(VERSIONS)); do \
	    if [ $$version = $$own ]; then continue; fi; \
	    if ! python=$$(.ci/find-python $$version); then continue; fi; \
	    venv=.venvs/$$version; \
	    if [ ! $$venv/.stamp -nt pyproject.toml ]; then \
	        echo "environments: $$venv with $$python"; \
	        rm -rf $$venv && "$$python" -m venv $$venv; \
	        $$venv/bin/python -m pip install $(PIP_FLAGS) -e '.[test]'; \
	        touch $$venv/.stamp; \
	    fi; \
	done

interpreters: environments ## unit, contract and DB-API suites on every other Python found, or: make interpreters ON=3.11 SUITES=tests/dbapi
	@set -e; own=$$($(PY) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in $(or $(ON),$(VERSIONS)); do \
	    if [ $$version = $$own ]; then continue; fi; \
	    if ! .ci/find-python $$version >/dev/null; then \
	        echo "*** SKIPPED: no Python $$version that starts was found; herdpy is not tested on it"; \
	        continue; \
	    fi; \
	    venv=.venvs/$$version; \
	    echo "interpreters: $$($$venv/bin/python --version)"; \
	    $(IN_MEMORY) $$venv/bin/python -m pytest -q -n 2 -m "not exhaustive and not long" $(or $(SUITES),tests/unit tests/contract tests/dbapi); \
	done

bare: setup ## a wheel in an environment with the base install alone, where the DB-API suites run
	$(PY) -m tests.bare

# What `make check` does a few of, and parts below many, is done once: property tests with the examples of `make fuzz N=100`.
test: export HERDPY_EXAMPLES := 100
test: export NO_SAMPLES := yes
test: setup ## everything that must pass before a push, each part with its seconds
	$(call part,lint)
	$(call parts_beside,'environments ON=$(lastword $(VERSIONS))' types 'kill N=10' 'kill-staging N=10' 'fuzz-wire N=50000 SEED=1')
	$(call part,suites)
	$(call part,integration)
	$(call part,docs)
	$(call part,pg-oracle N=2000 SEED=1)
	$(call part,fuzz-cost N=200)
	$(call part,crash N=500)
	$(call part,damage N=200)
	$(call part,sim-ledger N=300)
	$(call part,sim-recovery N=50)
	$(call part,sim-server N=100)
	$(call part,sim N=25)
	$(call part,interpreters ON=$(lastword $(VERSIONS)) SUITES="tests/contract tests/dbapi -k 'not tcp and not grpc and not async'") # the oldest; setup took the newest

spark: setup ## a real local Spark and a real server: every option, type, operation and error
	$(PY) -m pytest -q --timeout 600 -m "not big" tests/spark

spark-big: setup ## one job of five million rows, by a server with a budget of 128 MiB
	$(PY) -m pytest -q -s -m big tests/spark

spark-faults: setup ## Spark on a local cluster, its processes and the server killed, or a cluster's leader: make spark-faults N=20 SEED=7 ON=cluster
	$(PY) -m tests.spark_faults $(kill_flags) $(if $(ON),--on $(ON))

demo: setup ## load five real tables, query them, kill a writer, prove that nothing was lost
	@$(PY) -m herdpy.cli.demo $(or $(DIR),./demo-data)

cluster-demo: setup ## a program on a directory, then on a cluster: leader and bookies killed, all copies compared
	@$(PY) -m herdpy.cli cluster demo

bench-wire: setup ## the wire codecs against plain protobuf, into build/bench/wire.json
	$(PY) -m tests.benchmarks.wire

interop: setup ## Apache BookKeeper from Maven with ours, mixed; gRPC clients in Node and Go
	$(PY) -m pytest -q --timeout 600 tests/interop

soak: setup ## ledgers rolled and deleted for 20 minutes, or N: make soak N=5
	$(PY) -m tests.benchmarks.soak $(if $(N),--minutes $(N))

bench-ledger: setup ## our bookies and client against Apache's, into build/bench/ledger.json
	$(PY) -m tests.benchmarks.ledger $(if $(N),--rounds $(N))

bench-recovery: setup ## our AutoRecovery against Apache's on Apache's bookies: make bench-recovery N=3
	$(PY) -m tests.benchmarks.recovery $(if $(N),--rounds $(N))

bench-server: setup ## CPU of the bookie's server side for an add, into build/bench/bookie-server.json
	$(PY) -m tests.benchmarks.bookie_server

bench-memory: setup ## memory of statements of five million rows under a budget of 128 MiB, into build/bench/memory.json: make bench-memory N=200000
	$(PY) -m tests.benchmarks.memory $(if $(N),--rows $(N))

bench-tablespaces: setup ## 200 tablespaces in one process: threads, idle time, opening, commits, into build/bench/tablespaces.json: make bench-tablespaces N=50
	$(PY) -m tests.benchmarks.tablespaces $(if $(N),--count $(N))

bench-calls: setup ## product functions entered by one statement: make bench-calls OLD=62f20b8, or LIST="network insert"
	$(PY) -m tests.benchmarks.calls $(old_flags) $(if $(LIST),--list --only "$(LIST)")

bench-embedded: setup ## time it against sqlite3, and an older commit by turns: make bench-embedded OLD=62f20b8
	$(PY) -m tests.benchmarks.embedded $(old_flags)

bench-herddb: setup ## in process and a server against HerdDB 0.29.0 from Maven: make bench-herddb N=5
	$(PY) -m tests.benchmarks.herddb $(if $(N),--rounds $(N)) $(if $(PLOT),--plot $(PLOT))

bench-cluster: setup ## a replicated tablespace against HerdDB's cluster, PostgreSQL with a standby and our server: make bench-cluster N=3 PLOTS=docs/plots
	@$(PY) -c 'import psycopg' 2>/dev/null || $(PY) -m pip install $(PIP_FLAGS) -e ".[bench]"
	$(PY) -m tests.benchmarks.cluster $(if $(N),--rounds $(N)) $(if $(PLOTS),--plots $(PLOTS))

bench-network: setup ## a server against PostgreSQL 15 through psycopg: make bench-network N=5 AWAKE=1 PLOT=docs/plots/network.png
	@$(PY) -c 'import psycopg' 2>/dev/null || $(PY) -m pip install $(PIP_FLAGS) -e ".[bench]"
	$(PY) -m tests.benchmarks.network $(if $(N),--rounds $(N)) $(if $(AWAKE),--awake) $(if $(PLOT),--plot $(PLOT))

bench-neighbours: setup ## a point reader and an administrator beside users that do their worst: make bench-neighbours N=3
	$(PY) -m tests.benchmarks.neighbours $(if $(N),--rounds $(N))

bench-spark: setup ## Spark on a server, on Parquet and on PostgreSQL: make bench-spark N=3 PLOT=docs/plots/spark.png
	@$(PY) -c 'import psycopg' 2>/dev/null || $(PY) -m pip install $(PIP_FLAGS) -e ".[bench]"
	$(PY) -m tests.benchmarks.spark $(if $(N),--rounds $(N)) $(if $(PLOT),--plot $(PLOT))

big: setup ## tests on tables of ten million rows
	$(PY) -m pytest -q -m big tests/big

clean: ## remove what was built, installed environments included
	rm -rf .venv .venvs build dist .pytest_cache .ruff_cache .hypothesis
