# Each command does all its own set-up in .venv; run it again whenever you like.
#   make chat [PROMPT="..."] [BACKEND=llama]   a real local model answers through the bridge
#   make test [ARGS="..."]                     everything installed, linted, type-checked and tested
#   make lint | soak | fuzz | bench | docs | lock | clean

SHELL := /bin/sh
BACKEND ?= openvino
PROMPT ?= What is the capital of France?
ARGS ?=
export PROMPT

# .venv is made with the first Python 3.11+ found; PYTHON=/path/to/python names one
FIND = python=$$(sh scripts/find-python.sh) &&
RUN = $(FIND) "$$python"

.PHONY: chat test lint soak fuzz bench docs lock wheel clean

chat:
	@$(RUN) scripts/chat.py --backend "$(BACKEND)"

test:
	@$(RUN) scripts/test.py $(ARGS)

lint:
	@$(RUN) scripts/test.py --lint

# the full counts of the tests, with shortened leases; the result goes to docs/soak/
soak:
	@$(RUN) scripts/soak.py $(ARGS)

# property tests with many more examples
fuzz:
	@$(RUN) scripts/fuzz.py $(ARGS)

# the table of measured budgets; REPORT=1 writes docs/performance.md
bench:
	@$(RUN) scripts/prepare.py dev openvino llama && .venv/bin/python -m bench $(ARGS)

# the references made from the code, then the site: docs/_build/index.html
docs:
	@$(RUN) scripts/prepare.py dev docs mcp openvino remote && .venv/bin/python scripts/references.py \
	&& .venv/bin/python -m sphinx -q -W --keep-going -b html docs docs/_build && echo docs/_build/index.html

# a release in dist/: the wheel, with the VS Code extension in it, and the source archive
wheel:
	@$(RUN) scripts/prepare.py dev && .venv/bin/python scripts/wheel.py

# constraints.txt anew, from the newest versions that pyproject.toml allows
lock:
	@$(RUN) scripts/lock.py

clean:
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	rm -rf .venv .chat .work .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
