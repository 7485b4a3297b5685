# One Makefile for people and CI. `make help` lists the targets.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= auto
FUZZ ?= 1000000
SEED ?= $(shell date +%s)

.PHONY: help setup servers demo test lint types fuzz bench chaos docs lock format clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: ## environment in .venv, broker jars, Java if it is missing (fast when nothing changed)
	@$(PYTHON) tools/setup.py

servers: ## PostgreSQL and MariaDB for the tests, as Debian packages, if they are missing (needs root)
	@$(PYTHON) tools/servers.py

demo: setup ## an exactly-once pipeline on a real Kafka, killed twice, judged by an independent client
	@$(BIN)/python -m demo.run

test: setup servers ## all tests, in parallel, against real brokers and databases
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not chaos" --durations=25

lint: setup ## ruff, formatting, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup ## mypy, strict, on sources and tests
	$(BIN)/mypy

format: setup ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: setup ## 1,000,000 mutated record batches through the decoder (FUZZ=n for another number)
	$(BIN)/python tools/fuzz_decode.py --count $(FUZZ)

bench: setup servers ## side by side in one run: codec, sink and source beside others, visibility, PostgreSQL
	$(BIN)/python bench/codec.py
	$(BIN)/python bench/visibility.py
	$(BIN)/python -m bench.spark
	$(BIN)/python -m bench.postgres

chaos: setup servers ## long runs: killed drivers and executors, fuzzing with a new seed (SEED=n to repeat one)
	$(BIN)/pytest -v -m chaos
	$(BIN)/python tools/fuzz_decode.py --count $(FUZZ) --seed $(SEED)

docs: setup ## the documentation site, into build/site; `make test` runs every example in it
	@$(BIN)/python tools/build_site.py
	$(BIN)/pytest -q -n $(JOBS) tests/unit/test_docs.py tests/unit/test_options_page.py tests/unit/test_site.py
	@echo "The site is in build/site; it needs no server: open build/site/index.html"

lock: setup ## write the lock files anew from pyproject.toml
	$(BIN)/python tools/lock.py

clean: ## remove everything that the targets made in this folder
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
