#!/bin/sh
# venv.sh EXTRA [FOLDER [REQUIREMENT ...]]: makes FOLDER (.venv) and installs this checkout in it, with an extra of pyproject.toml
# (demo, test, test-torch), and before that the first REQUIREMENT that pip finds. Called by make.
set -eu
cd "$(dirname "$0")"
extra=$1
folder=${2:-.venv}
shift; [ $# -eq 0 ] || shift

fail() {
    printf '\nerror: %s\n' "$1" >&2
    shift
    for hint in "$@"; do printf 'hint: %s\n' "$hint" >&2; done
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

find_python() {
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do
        if new_enough "$python"; then return; fi
    done
    first=${PYTHON:-python3}
    version=$("$first" --version 2>&1) || fail "$first does not run" \
        "install Python 3.10 or later, or say where it is: make demo PYTHON=/path/to/python3"
    fail "$first is $version; 3.10 or later is needed" \
        "install a newer one, or say where it is: make demo PYTHON=/path/to/python3"
}

own="$folder/bin/python"
if ! { [ -x "$own" ] && new_enough "$own" && "$own" -m pip --version >/dev/null 2>&1; }; then
    find_python
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$python cannot make virtual environments" \
        "Debian and Ubuntu have that in a package of its own: apt install python3-venv"
    "$python" -m venv --clear "$folder" || fail "$python cannot make a virtual environment in $folder"
fi

pip() {
    "$own" -m pip install --quiet --disable-pip-version-check --retries 2 "$@"
}

echo "Installing what '$extra' needs from PyPI into $folder: once, some minutes on a slow line."
for requirement in "$@"; do
    if pip "$requirement" 2>/dev/null; then break; fi
done
pip --editable ".[$extra]" || fail \
    "pip could not install what is needed" \
    "this step needs the network, or a mirror that PIP_INDEX_URL names; proxies are read from HTTPS_PROXY" \
    "then run the same command again: it goes on where it was"
