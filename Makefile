# Everything runs in a virtual environment that is made here: `make demo` and `make test` need Python 3.10 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo docs docs-screens test lint types layers unit coverage others bench bench-quick bench-old bench-open bench-remote bench-samplers bench-shard-size test-frameworks test-servers soak clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' Makefile

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)  ## real digits: shards, index, contact sheet, training on two ranks
	$(BIN)/python examples/digits.py

test: lint types layers others docs unit  ## everything that must hold before a change lands

docs: $(READY)  ## the site, into site/index.html; a warning is an error, a link that leads nowhere for one
	# Without --quiet, which would hide warnings from --strict too.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-screens: docs  ## its pages as pictures: wide and on a phone, light and dark
	$(BIN)/python docs/screens.py

lint: $(READY)  ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy --strict
	$(BIN)/mypy

layers: $(READY)  ## import-linter: the layers of the package
	$(BIN)/lint-imports

unit: $(READY)  ## pytest with doctests
	$(BIN)/python -m pytest -n 2 $(ARGS)

coverage: $(READY)  ## the same with branch coverage
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered $(ARGS)

others: $(READY)  ## what needs no torch, on the other Python versions of this machine
	$(BIN)/python tests/other_pythons.py

PEERS := .venv-peers/bin

.venv-peers/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-peers
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . matplotlib \
	  datasets webshart array_record litdata
	# Its own requirements contradict those of the others; these are what it imports.
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check --no-deps mosaicml-streaming
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt transformers brotli python-snappy zstd catalogue
	touch $@

bench: .venv-peers/.ready  ## a sample at random, in order and in batches, against all peers; writes docs/benchmarks.md
	$(PEERS)/python benchmarks/random_access.py --write
	$(PEERS)/python benchmarks/write_document.py

bench-quick: $(READY)  ## the same against the floor and wids 0.1.11
	ROUNDS=1 $(BIN)/python benchmarks/random_access.py

bench-old: $(READY)  ## compare with wids 0.1.11 on the same shards, in one run
	$(BIN)/python benchmarks/against_wids_0_1.py

bench-open: $(READY)  ## what opening a shard costs: scanned, through its index, in memory
	$(BIN)/python benchmarks/open_shard.py

bench-remote: $(READY)  ## fetching ahead, byte ranges, and a cache smaller than the data
	$(BIN)/python benchmarks/remote.py

bench-shard-size: $(READY)  ## how large shards and chunks should be; draws docs/images/shard_size.svg
	$(BIN)/python benchmarks/shard_size.py

bench-samplers: $(READY)  ## 100,000 shards and 1e9 samples on 64 ranks
	$(BIN)/python benchmarks/sampler_scale.py

test-frameworks: $(READY)  ## what needs heavy packages: Lightning, Accelerate, Trainer; pages and examples that do; installing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[frameworks,servers]'
	WIDS_FRAMEWORKS=1 $(BIN)/python -m pytest tests/sampling/test_frameworks.py tests/docs tests/examples $(ARGS)

test-servers: $(READY)  ## nginx, and S3 as moto serves it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[servers]'
	command -v nginx || apt-get install -q -y --no-install-recommends nginx-light
	WIDS_SERVERS=1 $(BIN)/python -m pytest tests/storage/test_servers.py $(ARGS)

soak: $(READY)  ## jobs that torchrun starts in every way; processes that are killed at any moment
	WIDS_SOAK=1 $(BIN)/python -m pytest tests/sampling tests/storage/test_kill.py $(ARGS)

bench-border: $(READY)  ## where looking at every block for headers stops to pay
	$(BIN)/python benchmarks/scan_border.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-* site site-screens .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
