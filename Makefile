# `make app` and `make test` do all the set-up on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
PORT ?= 8501
BIN := $(VENV)/bin

.PHONY: app test everyday browser check demo screenshots clean

app: $(VENV)/.app
	$(BIN)/python -m auditlib demo
	$(BIN)/streamlit run app.py --server.port $(PORT) --server.headless $(if $(HEADLESS),true,false)

test: $(VENV)/.dev browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist loadfile

everyday: check browser
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

check: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# Browser tests drive a real Chromium. Debian's package is installed where that is possible; elsewhere they say what is missing.
browser:
	@command -v chromium >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "Chromium is not installed: browser tests will be skipped (Debian: apt-get install chromium)"

demo: $(VENV)/.app
	$(BIN)/python -m auditlib demo --rebuild

screenshots: $(VENV)/.dev browser
	$(BIN)/python docs/screenshots.py

$(VENV)/.app: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 app"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt requirements-adapters.txt $(VENV)/.app
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) var .pytest_cache .mypy_cache .ruff_cache
