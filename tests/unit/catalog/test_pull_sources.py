"""What is typed as a source or a checksum, and what was meant."""

from __future__ import annotations

import pytest

from shared.errors import DownloadFailed
from shared.fetch.source import sha256_of, understood

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("typed", "source"),
    [
        ("starter", "starter"),
        (" Starter ", "starter"),
        ("HF:Owner/Repo:Q4", "hf:Owner/Repo:Q4"),
        ("hf:owner/repo/", "hf:owner/repo"),
        ("hf://owner/repo", "hf:owner/repo"),
        ("https://host/m.gguf", "https://host/m.gguf"),
        ("https://huggingface.co/o/r/resolve/main/m.gguf", "https://huggingface.co/o/r/resolve/main/m.gguf"),
        ("./startr", "./startr"),
        ("/a/b", "/a/b"),
        ("C:\\models\\m.gguf", "C:\\models\\m.gguf"),
        ("m.gguf", "m.gguf"),
    ],
)
def test_sources(typed: str, source: str) -> None:
    assert understood(typed, exists=False) == source


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("startr", "did you mean starter?"),
        ("start", "did you mean starter?"),
        ("bartowski/Foo-GGUF", "did you mean hf:bartowski/Foo-GGUF?"),
        ("hf/bartowski/Foo", "did you mean hf:bartowski/Foo?"),
        ("hf.co/bartowski/Foo:Q4_K_M", "did you mean hf:bartowski/Foo:Q4_K_M?"),
        ("huggingface:o/r", "did you mean hf:o/r?"),
        ("https://huggingface.co/o/r", "pull hf:o/r"),
        ("https://huggingface.co/o/r/blob/main/x/m.gguf", "pull hf:o/r:x/m.gguf"),
        ("https://huggingface.co/o/r/tree/main", "pull hf:o/r"),
        ("ftp://host/m", "only http and https"),
        ("llama3.2:3b", "`ollama pull llama3.2:3b`"),
        ("qwen", "none of: starter, hf:owner/repo"),
    ],
)
def test_a_name_typed_wrong_gets_the_nearest(typed: str, meant: str) -> None:
    from shared.fetch.hub import parse

    with pytest.raises(DownloadFailed) as caught:
        parse(understood(typed, exists=False))
    assert meant in caught.value.reason


def test_a_file_of_that_name_is_meant() -> None:
    assert understood("startr", exists=True) == "startr"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "64 hex digits"),
        ("hello", "64 hex digits"),
        ("a" * 32, "an MD5"),
        ("a" * 40, "a SHA-1, or a commit"),
        ("sha256:" + "a" * 63, "63 hex digits"),
        ("a" * 128, "a SHA-512"),
        ("g" * 64, "64 hex digits"),
    ],
)
def test_what_is_no_checksum(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        sha256_of(text)


def test_a_bsd_line() -> None:
    assert sha256_of(f"SHA256 (m (1).gguf) = {'A' * 64}") == "a" * 64
