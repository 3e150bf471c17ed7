#!/bin/sh
# host.sh [FOLDER]: on a GPU, what a call of Conv2d and a launch cost the host, layers at random, and the tests of both, with
# the Python that PYTHON names. FOLDER (build/host) gets host_sm90.json, shapes_random_sm90.json and what was printed; if
# all is well the two belong into kernels_sass/results. What SECONDS_OF_LAYERS (300) cut short goes on when it is called again.
folder=${1:-build/host} python=${PYTHON:-python3} failed=0
cd "$(dirname "$0")/../.." && mkdir -p "$folder" || exit 1

step() {
    name=$1 && shift
    echo "== $*"
    "$@" > "$folder/$name.txt" 2>&1 || { failed=1; echo "failed: $name"; }
    tail -25 "$folder/$name.txt"
}

step host "$python" -m turingas bench host --json "$folder/host_sm90.json"
step tests "$python" -m pytest -q -m gpu tests/gpu/test_loader.py tests/gpu/test_conv2d.py
step random "$python" -m turingas bench shapes --random 200 --seed "${SEED:-1}" --seconds "${SECONDS_OF_LAYERS:-300}" \
    --json "$folder/shapes_random_sm90.json"
exit $failed
