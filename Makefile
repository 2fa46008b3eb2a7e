# Everything runs in a virtual environment that is made here: `make demo` and `make test` need Python 3.10 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo docs docs-screens test lint types layers unit coverage others bench bench-quick bench-old bench-open bench-remote bench-samplers bench-selection bench-join bench-write bench-create bench-shard-size bench-loader bench-cold bench-decode bench-memory bench-size test-cluster test-frameworks test-servers test-slurm test-interop soak clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' Makefile

$(READY): pyproject.toml constraints.txt
	test ! -L $(VENV)  # what it is a link to is somebody else's
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
	$(BIN)/python -m pytest -n 3 $(ARGS)

coverage: $(READY)  ## the same with branch coverage
	$(BIN)/python -m pytest -n 3 --cov --cov-report=term:skip-covered $(ARGS)

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
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check --no-deps megatron-energon
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  multi-storage-client click rapidyaml webdataset filetype mfusepy s3fs
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

bench-join: $(READY)  ## columns, conditions and joins over ten million samples
	$(BIN)/python benchmarks/join.py

bench-create: $(READY)  ## describing 400 shards, against wids 0.1.11 and md5sum
	$(BIN)/python benchmarks/create_descriptor.py

bench-shard-size: $(READY)  ## how large shards and chunks should be; draws docs/images/shard_size.svg
	$(BIN)/python benchmarks/shard_size.py

bench-loader: $(READY)  ## a DataLoader, raw and decoded, against webdataset, wids 0.1.11 and a bare loop
	$(BIN)/python benchmarks/dataloader.py

bench-cold: $(READY)  ## files that are not in memory: each advice that madvise takes
	$(BIN)/python benchmarks/cold_files.py

bench-decode: $(READY)  ## JPEGs by decoder, form and size
	$(BIN)/python benchmarks/decode_images.py

bench-memory: $(READY)  ## what a worker holds of its own
	$(BIN)/python benchmarks/memory.py

bench-size: .venv-peers/.ready  ## the cost of a sample against the number of shards and of members
	$(PEERS)/python benchmarks/random_access.py --sizes --write

bench-samplers: $(READY)  ## 100,000 shards and 1e9 samples on 64 ranks
	$(BIN)/python benchmarks/sampler_scale.py

bench-selection: $(READY)  ## 10 million samples in 1,000 shards: sizes, masks, splits, and what a view costs
	$(BIN)/python benchmarks/selection.py

test-frameworks: $(READY)  ## what needs heavy packages: Lightning, Accelerate, Trainer; pages and examples that do; installing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[frameworks,servers]'
	WIDS_FRAMEWORKS=1 WIDS_PACKAGES="accelerate av lightning moto s3fs" $(BIN)/python -m pytest tests/sampling/test_frameworks.py tests/docs tests/examples $(ARGS)

CLUSTER := .venv-cluster/bin

.venv-cluster/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-cluster
	$(CLUSTER)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . distributed pytest pytest-timeout
	touch $@

test-cluster: .venv-cluster/.ready  ## a Dask cluster describes shards, one of its workers is killed
	$(CLUSTER)/python -m pytest tests/tools/test_cluster.py $(ARGS)

test-slurm: $(READY)  ## the guide to clusters on a SLURM of four nodes; needs root
	command -v slurmctld || apt-get install -q -y --no-install-recommends munge slurm-client slurmctld slurmd
	WIDS_SLURM=1 $(BIN)/python -m pytest tests/docs/test_clusters.py $(ARGS)

test-servers: $(READY)  ## nginx, and S3 as moto serves it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[servers]'
	command -v nginx || apt-get install -q -y --no-install-recommends nginx-light
	WIDS_SERVERS=1 $(BIN)/python -m pytest tests/storage/test_servers.py $(ARGS)

bench-write: $(READY)  ## shards written, beside webdataset's own writer
	$(BIN)/python benchmarks/write_shards.py

test-interop: $(READY)  ## Grain, Hugging Face datasets, Ray, Energon and DALI, each in an environment of its own
	$(BIN)/python tests/interop/run.py $(ARGS)

soak: $(READY)  ## jobs that torchrun starts in every way; processes that are killed at any moment
	WIDS_SOAK=1 $(BIN)/python -m pytest tests/sampling tests/storage/test_kill.py tests/tools/test_writer_kill.py $(ARGS)

bench-border: $(READY)  ## where looking at every block for headers stops to pay
	$(BIN)/python benchmarks/scan_border.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-* site site-screens .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
