# Every target makes the virtual environment itself when it is absent.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DATA   ?= ../shared/data
# the environment with the baselines' packages, if there is one
PEERS  := $(if $(wildcard .venv-baselines/.ready),.venv-baselines/bin,$(BIN))

.PHONY: help demo docs gallery gallery-rivals test test-slow test-matrix dist attack lint types format clean bench-speed bench-front bench-adult bench-evaluate bench-clinic bench-augment bench-memory bench-paper bench-scale bench-sdmetrics bench-smoke bench-lake bench-laptop bench-main bench-main-small bench-panel test-baselines goldens goldens-baselines

help:           ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml bench/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e ./bench
	touch $(READY)

demo: $(READY)  ## three strategies on the embedded clinic table: scores, rows, a report
	$(BIN)/augmask demo --out augmask-demo

test: lint types $(READY)  ## lint, types and tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

test-slow: $(READY)  ## the checks that take minutes
	$(BIN)/python -m pytest -q -m slow

# AUGMASK_ATTACK=full does as much as before a release: an hour on two cores
attack: $(READY)  ## hostile files, commands and calls, kills; prints figures
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow tests/attack

# A golden is rewritten only if the version was raised.
goldens: $(READY)  ## golden rows of generators and augmenters whose version was raised
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.bench.golden

goldens-baselines: .venv-baselines/.ready  ## the same for the baselines' own packages
	OMP_NUM_THREADS=1 .venv-baselines/bin/python -m tests.bench.golden

dist: $(READY)  ## wheels and source archives of both packages in dist/, contents checked
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist bench
	$(BIN)/python release/check_dist.py dist

# CELLS="3.12-newest 3.13-oldest" runs a part; PYTHONS names folders of interpreters
test-matrix: dist  ## the wheel in fresh environments: Pythons, oldest and newest libraries
	$(BIN)/python release/matrix.py dist $(CELLS)

# Warnings are errors. Nothing is run: the gallery's pages are committed.
docs: $(READY)  ## the documentation's site, into site/
	$(BIN)/python -m sphinx -b html -q -W --keep-going docs site

gallery: $(READY)  ## run the gallery's notebooks again: pages and pictures
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore docs/_ext/render_gallery.py $(NOTEBOOKS)

GALLERY_RIVAL = benchmarks/rivals_clinic.py
gallery-rivals: $(READY) .venv-rivals-sdv/.ready .venv-rival/.ready  ## rows of SDV and mostlyai for the gallery
	$(BIN)/python $(GALLERY_RIVAL) prepare gallery-results
	.venv-rivals-sdv/bin/python $(GALLERY_RIVAL) sdv gallery-results
	.venv-rival/bin/python $(GALLERY_RIVAL) mostlyai gallery-results

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## static types
	$(BIN)/mypy

format: $(READY)  ## rewrite files in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-adult: $(READY)  ## Adult on a CPU: time, memory, scores
	AUGMASK_DATA=$(DATA) $(BIN)/python benchmarks/adult_cpu.py

bench-evaluate: $(READY)  ## the whole evaluation of Adult: time, memory, numbers
	AUGMASK_DATA=$(DATA) $(BIN)/python benchmarks/evaluate_adult.py

bench-clinic: $(READY)  ## all backbones and strategies on the clinic table
	$(BIN)/python benchmarks/clinic_backbones.py

bench-augment: $(READY)  ## LGBM-S: processes against threads, idle and busy
	$(BIN)/python benchmarks/augment_speed.py --data $(DATA)/adult.csv.gz

bench-memory: demo  ## memory of a million rows over ten thousand
	$(BIN)/python benchmarks/sample_memory.py augmask-demo/clinic.augmask

bench-scale: $(READY)  ## time and memory of a fit by rows, up to ten million
	$(BIN)/python benchmarks/scale.py --rows 1000000 10000000 --augmenter ecdf --json benchmarks/results/scale.json

# On a machine with a GPU; docs/research/reproduce.md has the recipe for two machines.
bench-paper: $(READY)  ## the paper's setting; wants a GPU
	for do in run table figures; do AUGMASK_DATA=$(DATA) $(BIN)/augmask bench $$do benchmarks/paper-setting.toml || exit; done

# 80 GiB of disk and two hours; parts of it by hand: --rows 1000000
bench-lake: $(READY)  ## a table of many files in parts, up to 100 million rows
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/lake.py --rows 1000000 10000000 100000000 --json benchmarks/results/lake.json
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/lake.py --rows 1000000 --augmenter lgbm-s --json benchmarks/results/lake.json
	AUGMASK_DATA=$(DATA) $(BIN)/python benchmarks/sketch.py --json benchmarks/results/sketch.json

# sdmetrics wants an older pandas, hence an environment of its own. It has no torch: the
# metrics need none.
.venv-sdmetrics/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-sdmetrics
	.venv-sdmetrics/bin/python -m pip install --quiet --disable-pip-version-check \
	    sdmetrics==0.32.0 'pandas==2.3.3' 'numpy==2.3.5' 'scipy==1.17.1'
	.venv-sdmetrics/bin/python -m pip install --quiet --disable-pip-version-check \
	    --no-deps -e .
	touch .venv-sdmetrics/.ready

bench-sdmetrics: .venv-sdmetrics/.ready  ## Shape and Trend against sdmetrics
	AUGMASK_DATA=$(DATA) .venv-sdmetrics/bin/python benchmarks/against_sdmetrics.py

# The baselines' packages want older libraries, hence an environment of their own. Two of
# them declare gigabytes that they do not use, and come without what they declare. torch
# comes first, so that pip takes the build at hand.
.venv-baselines/.ready: pyproject.toml bench/pyproject.toml baselines-constraints.txt
	$(PYTHON) -m venv .venv-baselines
	.venv-baselines/bin/python -m pip install --quiet --disable-pip-version-check \
	    -c baselines-constraints.txt torch
	.venv-baselines/bin/python -m pip install --quiet --disable-pip-version-check \
	    -c baselines-constraints.txt -e . -e './bench[baselines]' pytest
	.venv-baselines/bin/python -m pip install --quiet --disable-pip-version-check \
	    -c baselines-constraints.txt --no-deps hyperimpute ForestDiffusion
	touch .venv-baselines/.ready

test-baselines: .venv-baselines/.ready  ## the baselines' own packages, in their environment
	OMP_NUM_THREADS=1 .venv-baselines/bin/python -m pytest -q tests/bench/baselines tests/bench/test_peers.py tests/bench/grid/test_baselines.py tests/bench/test_goldens.py

# A grid resumes where it stopped.
bench-smoke: $(READY)  ## every part of the benchmark once, in two minutes
	for do in run table figures; do $(BIN)/augmask bench $$do benchmarks/smoke.toml || exit; done

bench-laptop: $(READY)  ## small tables and networks, all baselines, two hours on two cores
	for do in run table figures; do AUGMASK_DATA=$(DATA) $(PEERS)/augmask bench $$do benchmarks/laptop.toml || exit; done

bench-main: $(READY)  ## all 21 rows of the paper's main table; wants a GPU
	for do in run table figures; do AUGMASK_DATA=$(DATA) $(PEERS)/augmask bench $$do benchmarks/main-table.toml || exit; done

bench-main-small: $(READY)  ## the same rows at small sizes, under an hour on one core
	for do in run table figures; do AUGMASK_DATA=$(DATA) $(PEERS)/augmask bench $$do benchmarks/main-table-small.toml || exit; done

bench-speed: $(READY)  ## training, sampling and augmentation against the published code's way
	$(BIN)/python benchmarks/speed.py

# The rival pins one minor version of torch, hence an environment of its own. Its other
# media libraries are not for this torch, and it goes without them.
.venv-rival/.ready:
	$(PYTHON) -m venv .venv-rival
	echo torch==2.13.0 > .venv-rival/constraints.txt
	.venv-rival/bin/python -m pip install --quiet --disable-pip-version-check \
	    -c .venv-rival/constraints.txt mostlyai-engine==2.7.3
	.venv-rival/bin/python -m pip uninstall --quiet --yes torchvision torchaudio
	touch .venv-rival/.ready

FRONT = AUGMASK_DATA=$(DATA) $(BIN)/python benchmarks/front.py \
    --result front-results/front.csv --out front-results/front.svg
bench-front: $(READY) .venv-rival/.ready  ## quality against minutes on a CPU, and a rival
	for seed in 0 1 2 3 4; do \
	    work="front-results/$$seed --seed $$seed"; \
	    test $$seed = 0 || work="$$work --tables magic-0.7"; \
	    $(FRONT) prepare $$work && $(FRONT) ours $$work && $(FRONT) score $$work && \
	    $(FRONT) rival $$work --python .venv-rival/bin/python && $(FRONT) score $$work || exit; \
	done
	$(FRONT) ours front-results/0 --preset balanced
	$(FRONT) score front-results/0
	$(FRONT) table
	$(FRONT) plot

# Rivals of the panel, each with exactly the packages that it ran with: what they declare
# beyond these is not used here.
.venv-rivals-%/.ready: benchmarks/panel/pins-%.txt
	$(PYTHON) -m venv .venv-rivals-$*
	.venv-rivals-$*/bin/python -m pip install --quiet --disable-pip-version-check \
	    --no-deps -r benchmarks/panel/pins-$*.txt
	touch .venv-rivals-$*/.ready

RIVALS = .venv-rival/.ready .venv-baselines/.ready .venv-rivals-sdv/.ready \
    .venv-rivals-utrees/.ready .venv-rivals-impute/.ready
PANEL = AUGMASK_DATA=$(DATA) $(BIN)/python benchmarks/panel
# TABLES="star pbc" and METHODS=ours take a part; every step resumes
bench-panel: $(READY) $(RIVALS)  ## public tables with missing values, ours and rivals
	$(PANEL) prepare panel-results $(if $(TABLES),--tables $(TABLES))
	$(PANEL) run panel-results $(if $(TABLES),--tables $(TABLES)) $(if $(METHODS),--methods $(METHODS))
	$(PANEL) score panel-results $(if $(TABLES),--tables $(TABLES))
	$(PANEL) page

clean:          ## remove environments, demo output and results
	rm -rf dist $(VENV) .venv-sdmetrics .venv-rival .venv-rivals-* .venv-baselines augmask-demo site gallery-results smoke-results laptop-results main-table-results main-table-third-results main-table-small-results complete-results paper-setting-results p60-results p60-oracles-results p60-full-results front-results panel-results
