"""Measures the budgets of the design: `make bench`.

Every ratio is taken within one run, in interleaved pairs, with medians and spread; absolute numbers say more about
the machine than about modeld.
"""

from __future__ import annotations

import sys
from pathlib import Path

# the clients and the weights of the tests serve here too
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
