# make fuzz   set up everything, then a short real campaign
# make test   set up everything, then all tests
# make test-fast   those that take a moment
# make lint   ruff, mypy, import-linter and vulture
# make kernels   .venv-kernels: the same torch with Triton, flash_attn and torch_npu, for virtual targets too
# make systems   .venv-systems: the same torch with transformers and the other systems whose attention is a kernel
# make clean   take away what these have made

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.attnfuzz-installed
KERNELS := .venv-kernels
KERNELS_STAMP := $(KERNELS)/.installed
SYSTEMS := .venv-systems
SYSTEMS_STAMP := $(SYSTEMS)/.installed
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c '$(SUPPORTED)' 2>/dev/null && { echo $$p; break; }; done)
# Tests wait for processes half of the time: three of them keep two cores busy.
AT_ONCE := -n 3 --dist worksteal
RESULTS := campaigns/smoke-$(shell date +%Y%m%d-%H%M%S)

.DEFAULT_GOAL := help
.PHONY: help install fuzz browser prometheus test test-fast lint kernels systems clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "attnfuzz needs Python 3.11, 3.12 or 3.13: none of python3, python3.13, python3.12 and python3.11 is one (make PYTHON=/path/to/python3.13 names another)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	@touch $(STAMP)

install: $(STAMP)

fuzz: $(STAMP)
	$(BIN)/attnfuzz launch configs/smoke.yaml --dir $(RESULTS) --html $(RESULTS)/report.html

# Tests of the pages need a browser. Where none can be installed they do not run, which the last
# lines of `make test` say.
browser:
	@for one in chromium chromium-browser google-chrome; do command -v $$one >/dev/null && exit 0; done; \
	test "$$(id -u)" = 0 || exit 0; \
	{ apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } \
		>/dev/null 2>&1 || true

# Queries of the board of metrics need a Prometheus: Debian's program, without its service.
prometheus: $(STAMP)
	@test -x $(BIN)/prometheus || { cd $(VENV) && mkdir -p debian && cd debian && apt-get download prometheus && \
		dpkg -x prometheus_*.deb . && cp usr/bin/prometheus ../bin/; } >/dev/null 2>&1 || true

test: $(STAMP) browser prometheus
	$(BIN)/python -m pytest $(AT_ONCE)

test-fast: $(STAMP)
	$(BIN)/python -m pytest $(AT_ONCE) -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/vulture
	$(BIN)/vulture actors benchmarks corpus fuzz generators tests

# A toolchain of its own: with Triton there, Inductor imports it for every program. Its torch is the
# one in $(VENV). Nothing is compiled: flash_attn is given its Triton back-end (see docs/USING.md).
# Torch does not load torch_npu by itself there, as it would: without an NPU's libraries that fails.
$(KERNELS_STAMP): $(STAMP)
	$(BIN)/python -m venv --without-pip --clear $(KERNELS)
	@$(BIN)/python -c "import site; print(site.getsitepackages()[0])" \
		> $$($(KERNELS)/bin/python -c "import site; print(site.getsitepackages()[0])")/base.pth
	$(KERNELS)/bin/python -m pip install -q triton==3.7.1 einops==0.8.2 ninja==1.13.2 setuptools==84.2.1 wheel==0.48.0
	FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE FLASH_ATTENTION_FORCE_BUILD=TRUE \
		$(KERNELS)/bin/python -m pip install -q --no-build-isolation --no-deps flash-attn==2.8.3
	$(KERNELS)/bin/python -m pip install -q --no-deps torch-npu==2.13.0 ring-flash-attn==0.1.8
	@echo 'import os; os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")' \
		> $$($(KERNELS)/bin/python -c "import site; print(site.getsitepackages()[0])")/no_autoload.pth
	@touch $(KERNELS_STAMP)

kernels: $(KERNELS_STAMP)

# Another toolchain of its own: the systems bring packages along that the base install does not
# have. Their own pins of torch and of what their trainers need are left out.
$(SYSTEMS_STAMP): $(STAMP) systems.txt
	$(BIN)/python -m venv --without-pip --clear $(SYSTEMS)
	@$(BIN)/python -c "import site; print(site.getsitepackages()[0])" \
		> $$($(SYSTEMS)/bin/python -c "import site; print(site.getsitepackages()[0])")/base.pth
	$(SYSTEMS)/bin/python -m pip install -q --no-deps -r systems.txt
	@touch $(SYSTEMS_STAMP)

systems: $(SYSTEMS_STAMP)

clean:
	rm -rf $(VENV) $(KERNELS) $(SYSTEMS) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
