"""What tests of a whole daemon begin with."""

from __future__ import annotations

import pytest

from modeld_process import write_models
from shared.paths import DataRoot


@pytest.fixture
def models(data_root: DataRoot) -> DataRoot:
    """Two in the store."""
    write_models(data_root, "a", "b")
    return data_root
