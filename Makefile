# The short way in. Everything here is a line of cmake, ctest or a script of tools/; docs/contributing.md shows them bare.
PRESET ?= release
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
CCACHE := $(shell command -v ccache)

.DEFAULT_GOAL := build
.PHONY: setup build test test-transformers test-clients demo bench format fuzz clean

setup:
	@tools/setup.sh

build: setup
	cmake --preset $(PRESET) $(if $(CCACHE),-DCMAKE_CXX_COMPILER_LAUNCHER=$(CCACHE))
	cmake --build --preset $(PRESET) --parallel $(JOBS) $(if $(TARGET),--target $(TARGET))

# PRESET=asan, tsan or ubsan tests under that sanitizer.
test: build
	ctest --preset $(PRESET) --parallel $(JOBS)

# Compares with Hugging Face's transformers and writes docs/verification.md. Installs the pinned library into a virtual
# environment: 5.6 GB, since torch comes with CUDA.
VENV := build/venv-transformers
test-transformers: build $(VENV)/installed
	$(VENV)/bin/python tests/golden/transformers_compare.py --asap build/$(PRESET)/asap --document docs/verification.md

$(VENV)/installed: tests/golden/transformers_requirements.txt
	@tools/setup.sh transformers
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --requirement $<
	touch $@

# Runs real clients (openai, guidellm, aiperf, vllm) against a server and prints a table for docs/clients.md. Installs each
# into a virtual environment of its own, some gigabytes.
test-clients: build
	@tools/setup.sh transformers
	tools/clients.py --asap build/$(PRESET)/asap --venvs build/venv-clients --install

# Serves the bundled model, sends prompts of very different lengths at once, prints completions and TTFT. The server is all
# that it needs built: half the time of everything.
demo: TARGET = asap
demo: build
	tools/demo.sh build/$(PRESET)/asap

bench: build
	tools/each.sh build/$(PRESET) '*_bench'

format:
	@tools/setup.sh format
	find asap tests -name '*.h' -o -name '*.cc' | xargs clang-format -i

fuzz:
	@tools/setup.sh fuzz
	$(MAKE) build PRESET=fuzz
	tools/fuzz.sh build/fuzz -max_total_time=$(FUZZ_SECONDS)

clean:
	rm -rf build
