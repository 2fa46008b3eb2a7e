# Everything runs in a virtual environment that make creates: `make demo` and `make test` need only Python 3.10 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo docs docs-screens test lint types layers unit coverage others bench bench-quick bench-old bench-open bench-remote bench-samplers bench-selection bench-join bench-write bench-border bench-create bench-shard-size bench-loader bench-cold bench-decode bench-memory bench-size test-cluster test-frameworks test-servers test-slurm test-interop soak clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' Makefile

$(READY): pyproject.toml constraints.txt
	test ! -L $(VENV)  # --clear would empty an environment that .venv merely links to
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)  ## the example on real digits: shards, index, contact sheet, training on two ranks
	$(BIN)/python examples/digits.py

test: lint types layers others docs unit  ## everything that must hold before a change lands

docs: $(READY)  ## build the site, site/index.html; any warning, such as a broken link, is an error
	# Without --quiet, which would hide warnings from --strict too.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-screens: docs  ## take pictures of the site's pages: wide and on a phone, light and dark
	$(BIN)/python docs/screens.py

lint: $(READY)  ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy --strict
	$(BIN)/mypy

layers: $(READY)  ## import-linter: the layers of the package
	$(BIN)/lint-imports

unit: $(READY)  ## pytest with doctests
	$(BIN)/python -m pytest -n 3 $(ARGS)

coverage: $(READY)  ## the same as unit, with branch coverage
	$(BIN)/python -m pytest -n 3 --cov --cov-report=term:skip-covered $(ARGS)

others: $(READY)  ## tests that need no torch, on the other Python versions of this machine
	$(BIN)/python tests/other_pythons.py

PEERS := .venv-peers/bin

.venv-peers/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-peers
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . matplotlib \
	  datasets webshart array_record litdata
	# Streaming's and Energon's own requirements contradict those of the others, so what they import is named here.
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check --no-deps mosaicml-streaming
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt transformers brotli python-snappy zstd catalogue
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check --no-deps megatron-energon
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  multi-storage-client click rapidyaml webdataset filetype mfusepy s3fs
	touch $@

bench: .venv-peers/.ready  ## a sample at random, in order and in batches, against all peers; writes docs/benchmarks.md
	$(PEERS)/python benchmarks/random_access.py --write
	$(PEERS)/python benchmarks/write_document.py

bench-quick: $(READY)  ## the same as bench, but only against the floor and wids 0.1.11
	ROUNDS=1 $(BIN)/python benchmarks/random_access.py

bench-old: $(READY)  ## compare with wids 0.1.11 on the same shards, in one run
	$(BIN)/python benchmarks/against_wids_0_1.py

bench-open: $(READY)  ## opening a shard: time by scan and through its index, and memory
	$(BIN)/python benchmarks/open_shard.py

bench-remote: $(READY)  ## prefetching, byte ranges, and a cache smaller than the data
	$(BIN)/python benchmarks/remote.py

bench-join: $(READY)  ## columns, conditions and joins over ten million samples
	$(BIN)/python benchmarks/join.py

bench-create: $(READY)  ## describing 400 shards, against wids 0.1.11 and md5sum
	$(BIN)/python benchmarks/create_descriptor.py

bench-shard-size: $(READY)  ## how large shards and chunks should be; draws docs/images/shard_size.svg
	$(BIN)/python benchmarks/shard_size.py

bench-loader: $(READY)  ## a DataLoader, raw and decoded, against webdataset, wids 0.1.11 and a bare loop
	$(BIN)/python benchmarks/dataloader.py

bench-cold: $(READY)  ## files that are not in the page cache: each advice that madvise takes
	$(BIN)/python benchmarks/cold_files.py

bench-decode: $(READY)  ## decoding JPEGs, by decoder, form and size
	$(BIN)/python benchmarks/decode_images.py

bench-memory: $(READY)  ## the private memory of a DataLoader worker
	$(BIN)/python benchmarks/memory.py

bench-size: .venv-peers/.ready  ## the time for a sample against the number of shards and of members
	$(PEERS)/python benchmarks/random_access.py --sizes --write

bench-samplers: $(READY)  ## samplers over 100,000 shards and 1e9 samples on 64 ranks
	$(BIN)/python benchmarks/sampler_scale.py

bench-selection: $(READY)  ## sizes, masks, splits and views over 10 million samples in 1,000 shards
	$(BIN)/python benchmarks/selection.py

test-frameworks: $(READY)  ## tests, pages and examples that need Lightning, Accelerate or the like; installing wids
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[frameworks,servers]'
	WIDS_FRAMEWORKS=1 WIDS_PACKAGES="accelerate av lightning moto s3fs" $(BIN)/python -m pytest tests/sampling/test_frameworks.py tests/docs tests/examples $(ARGS)

CLUSTER := .venv-cluster/bin

.venv-cluster/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-cluster
	$(CLUSTER)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . distributed pytest pytest-timeout
	touch $@

test-cluster: .venv-cluster/.ready  ## a Dask cluster indexes shards while one of its workers is killed
	$(CLUSTER)/python -m pytest tests/tools/test_cluster.py $(ARGS)

test-slurm: $(READY)  ## the guide to clusters, under SLURM on four nodes of this machine; needs root
	command -v slurmctld || apt-get install -q -y --no-install-recommends munge slurm-client slurmctld slurmd
	WIDS_SLURM=1 $(BIN)/python -m pytest tests/docs/test_clusters.py $(ARGS)

test-servers: $(READY)  ## tests against nginx, and S3 as moto serves it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[servers]'
	command -v nginx || apt-get install -q -y --no-install-recommends nginx-light
	WIDS_SERVERS=1 $(BIN)/python -m pytest tests/storage/test_servers.py $(ARGS)

bench-write: $(READY)  ## writing shards, against webdataset's own writer
	$(BIN)/python benchmarks/write_shards.py

test-interop: $(READY)  ## tests with Grain, Hugging Face datasets, Ray, Energon and DALI, each in its own environment
	$(BIN)/python tests/interop/run.py $(ARGS)

soak: $(READY)  ## long tests: torchrun jobs with every start method, processes killed at any moment
	WIDS_SOAK=1 $(BIN)/python -m pytest tests/sampling tests/storage/test_kill.py tests/tools/test_writer_kill.py $(ARGS)

bench-border: $(READY)  ## up to which distance between headers looking at every block pays off
	$(BIN)/python benchmarks/scan_border.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-* site site-screens .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
