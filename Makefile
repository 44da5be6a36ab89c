# Mosaic GPU, hands-on. `make` alone says what there is.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab toolchain mojo grading test test-slow test-gpu lint format build lock setup clean clean-all

PORT ?= 8888
ACCEL ?= auto
JOBS ?= 2

# Another project's modules on the path (as ROS and some conda set-ups leave them) are not for here.
unexport PYTHONPATH PYTHONHOME

VENV := .venv/bin
OLDEST := .venv-jax-oldest/bin
SETUP := PYTHON='$(PYTHON)' tools/setup
PYTEST := $(VENV)/python -m pytest

help:
	@echo 'Mosaic GPU, hands-on'
	@echo
	@echo '  make lab         set everything up and open the course in JupyterLab'
	@echo '  make test        set everything up and run the tests'
	@echo
	@echo 'Both need Python 3.12 or newer, pip and make; the rest they install into .venv.'
	@echo
	@echo '  make lab PORT=9000       another port than 8888'
	@echo '  make lab ACCEL=cpu       JAX for the CPU although there is an NVIDIA GPU'
	@echo '                           (ACCEL=cuda12: JAX for CUDA; by default what fits is taken)'
	@echo '  make lab PYTHON=/path    the Python to set up with'
	@echo '  make toolchain           only set up, with the compiler for PTX and SASS'
	@echo '  make mojo                set up, with the Mojo compiler of chapters 20 to 22'
	@echo
	@echo 'For those who work on the course itself (see CONTRIBUTING.md):'
	@echo
	@echo '  make build       build the notebooks from solutions/*.md'
	@echo '  make lint        ruff and mypy; make format lays the code out'
	@echo '  make test-slow   the oldest JAX, the slow tests, the browser tests'
	@echo '  make test-gpu    the tests that need an NVIDIA GPU'
	@echo '  make lock        resolve requirements*.lock anew (UPGRADE=1: newest versions)'
	@echo '  make clean       remove caches; make clean-all: the environments too'

lab:
	@$(SETUP) lab --accel $(ACCEL)
	@$(VENV)/course lab --port $(PORT)

toolchain:
	@$(SETUP) lab --accel $(ACCEL)

mojo:
	@$(SETUP) mojo --accel $(ACCEL)

grading:
	@$(SETUP) grading --accel $(ACCEL)

setup:
	@$(SETUP) test --accel $(ACCEL)

test: setup lint
	$(VENV)/course build --check
	$(PYTEST) -n $(JOBS) -m 'not slow and not browser and not gpu'
	$(VENV)/python -m course_lib.authoring.verification

test-slow: setup
	@$(SETUP) oldest-jax
	$(OLDEST)/python -m pytest -n $(JOBS) -m 'two_jax and not gpu'
	$(PYTEST) -n $(JOBS) -m '(slow or browser) and not gpu'

test-gpu: setup
	$(PYTEST) -m gpu

lint: setup
	$(VENV)/ruff check
	$(VENV)/ruff format --check
	$(VENV)/python -m course_lib.authoring.lint
	$(VENV)/mypy

format: setup
	$(VENV)/ruff check --fix
	$(VENV)/ruff format
	$(VENV)/python -m course_lib.authoring.lint --fix

build: setup
	$(VENV)/course build

lock:
	@$(SETUP) lock $(if $(UPGRADE),--upgrade)

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

clean-all: clean
	rm -rf .venv .venv-jax-oldest .toolchain .mojo .cache
