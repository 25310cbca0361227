#!/bin/sh
# A slice of a plan's training on a machine that has a GPU, torch and pandas, and gets a
# copy of this checkout with the folder `gpu` (docs/research/reproduce.md):
#
#   sh benchmarks/slice.sh prepare PLAN [OPTION]...       here: fill, and put into `gpu`
#   sh benchmarks/slice.sh train PLAN MINUTES GENERATOR...  there: rows into $OUT
#   sh benchmarks/slice.sh collect PLAN FOLDER            here: import, score, prepare anew
#
# Each generator trains in a process of its own, so that one compiles while others use the
# GPU. PYTHON is the interpreter there, python3 by default; AUGMASK_DATA has the tables.
set -eu

usage() {
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -ge 2 ] || usage
stage=$1 plan=$2
shift 2
out=$(basename "$plan" .toml)-results
bench=".venv/bin/augmask bench"

prepare() {
    mkdir -p gpu/data gpu/lib
    # a copy of a file that nobody may write is replaced
    cp -f "$AUGMASK_DATA"/*.csv.gz gpu/data/
    git rev-parse --short=12 HEAD > gpu/commit
    # the command line's packages, for the Python of that machine, and both packages'
    # metadata, because nothing is installed there
    [ -e gpu/lib/typer ] || .venv/bin/python -m pip install --quiet --target gpu/lib \
        --python-version "${THERE:-3.12}" --only-binary=:all: typer pydantic
    cp -r .venv/lib/python*/site-packages/augmask*.dist-info gpu/lib/
    find gpu/lib -name __pycache__ -prune -exec rm -rf {} +
    $bench fill "$plan" "$@"
    $bench export "$plan" gpu/work --what work "$@"
}

train() {
    minutes=$1
    shift
    export PYTHONPATH="$PWD/src:$PWD/bench/src:$PWD/gpu/lib" PYTHONDONTWRITEBYTECODE=1
    export AUGMASK_DATA=gpu/data AUGMASK_COMMIT="$(cat gpu/commit)"
    export OMP_NUM_THREADS=4 PYTHONUNBUFFERED=1
    bench="${PYTHON:-python3} -m augmask bench"
    pids=
    for generator in "$@"; do
        here=/tmp/slices/$out/$generator
        mkdir -p "$here"
        {
            $bench import "$plan" gpu/work --out "$here"
            $bench train "$plan" --out "$here" --methods "$generator" --jobs 0 \
                --minutes "$minutes" ${TOGETHER:+--together "$TOGETHER"}
            $bench export "$plan" "$OUT/$generator" --out "$here" --what results \
                --methods "$generator"
            $bench status "$plan" --out "$here" --methods "$generator"
        } > "$here/log.txt" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || echo "a process ended with $?"; done
    for generator in "$@"; do
        echo "== $generator"
        tail -n 12 "/tmp/slices/$out/$generator/log.txt"
    done
}

collect() {
    for folder in "$1"/*/; do $bench import "$plan" "$folder"; done
    rm -rf gpu/work
    $bench export "$plan" gpu/work --what work
    $bench score "$plan"
}

case $stage in
    prepare | train | collect) "$stage" "$@" ;;
    *) usage ;;
esac
