# `make test` sets up what it needs in .venv and runs all checks that need no GPU.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed

.PHONY: test test-gpu try bench reference docs clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test]"
	touch $@

try: $(STAMP)
	mkdir -p build
	$(BIN)/turingas assemble examples/copy.sass -o build/copy.cubin
	$(BIN)/turingas info build/copy.cubin
	$(BIN)/turingas disassemble build/copy.cubin
	$(BIN)/turingas lint examples/copy.sass
	$(BIN)/turingas run examples/copy.sass 'f32[1024]=random' 'f32[1024]' --grid 8 --block 128 --strict --counters

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -q -m gpu

bench: $(STAMP)
	$(BIN)/python -m tests.bench.assembler
	$(BIN)/python -m tests.bench.emulator

reference: $(STAMP)
	$(BIN)/python -m docs.reference

docs: $(STAMP)
	$(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) build
