"""Files that OpenVINO's GGUF reader would not read as they were meant: refused, or said."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from modeld.engine.openvino.gguf_support import check_gguf
from shared.errors import ModelLoadFailed
from tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.integration


def changed(path: Path, key: str, value: int) -> Path:
    """A tiny model whose header says one thing more."""

    class Writer(gguf.GGUFWriter):  # type: ignore[misc]
        def write_header_to_file(self, path: Path | None = None) -> None:
            self.add_uint16(key, value)
            super().write_header_to_file(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFWriter", Writer)
        return write_tiny_gguf(path)


def test_a_part_of_a_split_model_is_refused_also_where_the_catalog_was_not_asked(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed) as failed:
        check_gguf(changed(tmp_path / "big-00001-of-00003.gguf", "split.count", 3), "big")
    assert failed.value.stage == "header"
    assert "join the parts" in failed.value.reason


def test_a_single_file_that_says_so_is_read(tmp_path: Path) -> None:
    assert check_gguf(changed(tmp_path / "whole.gguf", "split.count", 1), "whole").complete
