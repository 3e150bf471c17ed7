# `make demo` shows what this is, `make test` runs all checks that need no GPU. Both set up what they need in .venv, once.
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/installed
DEMO  := $(VENV)/installed-demo
CUDNN := $(VENV)/installed-cudnn
TORCH := .venv-torch
TRITON := $(CURDIR)/.cache/triton-3.9.0
PYODIDE := .cache/pyodide-314.0.7

# Nothing is left outside the checkout.
export TURINGAS_CACHE        := $(CURDIR)/.cache/nvrtc
export MPLCONFIGDIR          := $(CURDIR)/.cache/matplotlib
export CUDA_CACHE_PATH       := $(CURDIR)/.cache/cuda
export XDG_CACHE_HOME        := $(CURDIR)/.cache
export PYTEST_DEBUG_TEMPROOT := $(CURDIR)/build

.PHONY: demo cudnn test test-slow test-torch test-triton test-gpu try bench bench-host readme docs pyodide vscode vscode-within clean

$(STAMP): pyproject.toml
	PYTHON="$(PYTHON)" ./venv.sh test
	touch $@ $(DEMO)

$(DEMO): pyproject.toml
	@PYTHON="$(PYTHON)" ./venv.sh demo
	@touch $@

# PICTURE=mine.jpg: another picture; OUTPUT=mine.png: where the result goes
demo: $(DEMO)
	@$(BIN)/python -m examples.demo $(if $(PICTURE),"$(PICTURE)") $(if $(OUTPUT),--output "$(OUTPUT)")

$(CUDNN): pyproject.toml
	@PYTHON="$(PYTHON)" ./venv.sh cudnn
	@touch $@

# our kernels timed beside cuDNN, which is fetched for it
cudnn: $(DEMO)
	@$(BIN)/python -c "import loader, sys; sys.exit('error: there is no GPU here' if loader.devices() == ['cpu'] else 0)"
	@$(MAKE) --no-print-directory $(CUDNN)
	mkdir -p build
	$(BIN)/turingas bench winograd --json build/winograd.json

try: $(STAMP)
	mkdir -p build
	$(BIN)/turingas assemble examples/copy.sass -o build/copy.cubin
	$(BIN)/turingas info build/copy.cubin
	$(BIN)/turingas disassemble build/copy.cubin
	$(BIN)/turingas lint examples/copy.sass
	$(BIN)/turingas run examples/copy.sass 'f32[1024]=random' 'f32[1024]' --grid 8 --block 128 --strict --counters

test: $(STAMP)
	mkdir -p build
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2
	@$(BIN)/python -c "import torch" 2>/dev/null || echo "skipped: tests/kernels_sass/torch, which need PyTorch: make test-torch"

# what takes too long for `make test`, such as a NOP put in at every place of every kernel
test-slow: $(STAMP)
	mkdir -p build
	$(BIN)/python -m pytest -q -n 2 -m slow

# the operator of PyTorch and what converts networks, on the CPU, in an environment of their own; PyTorch takes 3 GB, or
# 1 GB where pip finds a build for the CPU alone
test-torch: $(TORCH)/installed
	mkdir -p build
	$(TORCH)/bin/python -m pytest -q -n 2 tests/kernels_sass/torch

$(TORCH)/installed: pyproject.toml
	PYTHON="$(PYTHON)" ./venv.sh test-torch $(TORCH) "torch==2.13.0+cpu" "torch>=2.7"
	@touch $@

# kernels that a newer Triton than that of the tests compiles for Blackwell, on the CPU device; it takes 1 GB
test-triton: $(STAMP) $(TRITON)/installed
	mkdir -p build
	TURINGAS_TRITON="$(TRITON)" $(BIN)/python -m pytest -q tests/emulate/test_triton_blackwell.py

$(TRITON)/installed:
	$(BIN)/python -m pip install -q --no-deps --target "$(TRITON)" triton==3.9.0
	@touch $@

# first those that leave room for others, then those that time or look how much memory is free
test-gpu: $(STAMP)
	mkdir -p build
	@$(BIN)/python -m pytest -q -m "gpu and not alone" -n 8 --dist loadfile; others=$$?; \
		$(BIN)/python -m pytest -q -m "gpu and alone" && exit $$others

# what a call costs the host, layers at random, and the tests of both: needs a GPU with PyTorch and cuDNN
bench-host: $(STAMP)
	PYTHON=$(BIN)/python tests/gpu/host.sh build/host

bench: $(STAMP)
	$(BIN)/turingas bench assembler --json build/assembler.json
	$(BIN)/python -m tests.bench.emulator

# the tables of times in README and docs, and README's picture
readme: $(STAMP)
	$(BIN)/python -m docs.readme
	$(BIN)/python -m examples.demo --device cpu --output docs/demo.jpg

# without Pyodide the site is built all the same, and its page "Try it" says what is missing
docs: $(STAMP)
	-@$(MAKE) --no-print-directory pyodide
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Python for browsers, by npm, for the page of the site on which one tries a kernel
pyodide: $(PYODIDE)

$(PYODIDE):
	@command -v npm >/dev/null || { echo "error: npm is not installed"; exit 1; }
	rm -rf $@.new && mkdir -p $@.new
	cd $@.new && npm pack --loglevel=error --fetch-retries=1 --fetch-timeout=20000 $(subst pyodide-,pyodide@,$(@F)) && \
		tar -xzf pyodide-*.tgz --strip-components=1 && rm pyodide-*.tgz
	mv $@.new $@

# the extension for VS Code, build/turingas.vsix, and its tests; needs npm, and Node 20 or later
vscode: $(STAMP)
	@command -v npm >/dev/null || { echo "error: npm is not installed"; exit 1; }
	mkdir -p build
	cd editors/vscode && npm ci --no-audit --no-fund && npm run build && PATH="$(CURDIR)/$(BIN):$$PATH" npm test && \
		npm run package -- --out "$(CURDIR)/build/turingas.vsix"

# the extension within VS Code: its server, as the npm package code-server has it (about 700 MB in build/), and Chromium. What of
# its native modules is not needed here is not compiled.
WITHIN := build/vscode-server
vscode-within: vscode
	mkdir -p $(WITHIN)
	cd $(WITHIN) && npm install --ignore-scripts --no-save --no-audit --no-fund --prefix . code-server@4.99.4
	cd $(WITHIN)/node_modules/code-server/lib/vscode && npm install --ignore-scripts --omit=dev --no-audit --no-fund && \
		npm rebuild @vscode/spdlog native-watchdog @parcel/watcher && \
		{ npm rebuild node-pty || test -f node_modules/node-pty/build/Release/pty.node; }  # a later step is for its authors
	$(BIN)/python -m pytest -q tests/editor/test_within_vscode.py -m "slow or not slow"

clean:
	rm -rf $(VENV) $(TORCH) build .cache editors/vscode/node_modules editors/vscode/out
