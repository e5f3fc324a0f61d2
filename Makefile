# Each command does all its own set-up in .venv; run it again whenever you like. `make` alone lists them.

SHELL := /bin/sh
BACKEND ?= openvino
PROMPT ?= What is the capital of France?
ARGS ?=
export PROMPT

# .venv is made with the first Python 3.11+ found; PYTHON=/path/to/python names one
FIND = python=$$(sh scripts/find-python.sh) &&
RUN = $(FIND) "$$python"

.PHONY: help chat test editor lint soak cluster sdks programs fuzz coverage mutants bench docs lock wheel clean

# first, so that `make` alone prints it: each target with the text behind its ##
help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

chat: ## a real local model answers through the bridge [PROMPT="..."] [BACKEND=llama]
	@$(RUN) scripts/chat.py --backend "$(BACKEND)"

test: ## install everything, then lint, types and all tests [ARGS="pytest arguments"]
	@$(RUN) scripts/test.py $(ARGS)

# what depends on a real editor's own timing, beyond the few scenarios of `make test`
editor: ## every scenario in a real VS Code [ARGS="pytest arguments"]
	@$(RUN) scripts/test.py --editor $(ARGS)

lint: ## style, imports and types alone
	@$(RUN) scripts/test.py --lint

# the full counts of the tests, with shortened leases; the result goes to docs/soak/
soak: ## the full counts of the tests; writes pages under docs/soak/
	@$(RUN) scripts/soak.py $(ARGS)

# the official OpenAI SDKs, here and at llama.cpp's server; writes docs/sdks.md
sdks: ## the OpenAI SDKs against acp-bridge http [ARGS="--ours"]
	@$(RUN) scripts/prepare.py dev http llama && .venv/bin/python scripts/sdks.py $(ARGS)

# vLLM replicas of their own, in an environment of their own; the result goes to docs/soak/cluster.md
cluster: ## real vLLM replicas behind the bridge; writes docs/soak/cluster.md [ARGS="--turns 200"]
	@$(RUN) scripts/cluster.py $(ARGS)

# llm, aider, litellm, LangChain, and what Zed and Continue send, each once with real weights
programs: ## real programs at acp-bridge http [ARGS="llm aider"]
	@$(RUN) scripts/prepare.py dev http llama && .venv/bin/python scripts/programs.py $(ARGS)

# property tests with many more examples
fuzz: ## the property tests with many more examples
	@$(RUN) scripts/fuzz.py $(ARGS)

# the decisions alone: docs/quality/coverage.md and docs/quality/mutants.md
coverage: ## branch coverage of the modules that decide; writes a page under docs/quality/
	@$(RUN) scripts/prepare.py dev quality && .venv/bin/python scripts/quality.py coverage

mutants: ## whether their tests can fail: small changes, tried [ARGS="turn slot --children 2"]
	@$(RUN) scripts/prepare.py dev quality && .venv/bin/python scripts/quality.py mutants $(ARGS)

# the table of measured budgets; REPORT=1 writes docs/performance.md
bench: ## the measured budgets [ARGS="--report --peers"]
	@$(RUN) scripts/prepare.py dev http openvino llama && .venv/bin/python -m bench $(ARGS)

# the references made from the code, then the site: docs/_build/index.html
docs: ## the reference pages from the code, then the site in docs/_build
	@$(RUN) scripts/prepare.py dev docs http mcp openvino remote && .venv/bin/python scripts/references.py \
	&& .venv/bin/python -m sphinx -q -W --keep-going -b html docs docs/_build && echo docs/_build/index.html

# a release in dist/: the wheel, with the VS Code extension in it, and the source archive
wheel: ## a release in dist/
	@$(RUN) scripts/prepare.py dev && .venv/bin/python scripts/wheel.py

# constraints.txt anew, from the newest versions that pyproject.toml allows
lock: ## constraints.txt from the newest versions that pyproject.toml allows
	@$(RUN) scripts/lock.py

clean: ## remove everything that was made here
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	rm -rf .venv .chat .work .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
