"""A report that is sent to others says nothing about who sends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text.redact import Redactor

pytestmark = pytest.mark.unit

HIDE = Redactor(home="/home/ada", user="ada", host="engine-1", secrets=["s3cret-of-this-root"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/models/x.gguf", "~/models/x.gguf"),
        ("ada on engine-1", "<user> on <host>"),
        ("adam keeps his name", "adam keeps his name"),
        ('{"token": "abc", "model": "m"}', '{"token": <hidden>, "model": "m"}'),
        ("Authorization: Bearer abcdef", "Authorization: <hidden>"),
        ("OPENAI_API_KEY=sk-1234", "OPENAI_API_KEY=<hidden>"),
        ("https://me:pw@example.org/v1", "https://<hidden>@example.org/v1"),
        ("it is s3cret-of-this-root.", "it is <hidden>."),
        ("ghp_abcdEFGH0123456789abcdEFGH0123456789", "<hidden>"),
        ('"token_file": "/home/ada/x.token"', '"token_file": "~/x.token"'),
        ("instance bc3e529f-432e-4a25-902a-c7daaa6cbf7b", "instance bc3e529f-432e-4a25-902a-c7daaa6cbf7b"),
        ("sha256 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
         "sha256 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
        ("tokens: 59 prefilled", "tokens: 59 prefilled"),
    ],
)  # fmt: skip
def test_what_is_hidden_and_what_is_not(text: str, shown: str) -> None:
    assert HIDE(text) == shown


def test_ordinary_words_stay_where_the_user_is_called_so() -> None:
    assert Redactor(home="/root", user="root", host="localhost")("the data root /root/x") == "the data root ~/x"


@given(st.text(st.sampled_from("abc /:=\"'.token<>-1"), max_size=60))
def test_again_changes_nothing_and_the_secret_never_survives(text: str) -> None:
    once = HIDE(f"{text} s3cret-of-this-root {text}")
    assert "s3cret-of-this-root" not in once
    assert HIDE(once) == once
