"""A defect is reported by its type and place: its text may hold a key or a prompt."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from shared import codes
from shared.diagnosis.defect import DefectHandler, report

pytestmark = pytest.mark.unit

SECRET = "Bearer sk-Marked"


def failing() -> int:
    key = SECRET
    raise ValueError(f"Invalid header value {key!r}")


def unheard(name: str) -> logging.Logger:
    """The log of a library to which nobody listens, this test run neither."""
    log = logging.getLogger(name)
    log.propagate = False
    return log


@pytest.fixture
def heard() -> Iterator[logging.Logger]:
    log = unheard("heard.library")
    handler = DefectHandler("modeld")
    log.addHandler(handler)
    yield log
    log.removeHandler(handler)


def test_a_command_that_breaks_says_where_and_not_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert codes.ended("modeld", ["pull", SECRET], failing) == codes.FAILED
    reported = capsys.readouterr().err
    assert "Marked" not in reported
    assert "modeld: ValueError in pull at " in reported
    assert "in failing" in reported, "the calls that led there help who looks for the defect"


def test_what_a_library_logs_of_an_error_is_its_type_and_place(
    heard: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        failing()
    except ValueError:
        heard.exception("while sending %s", SECRET)
    heard.error("refused: %s", SECRET)
    heard.warning("sent: %s", SECRET)
    reported = capsys.readouterr().err
    assert "Marked" not in reported
    assert reported.splitlines()[0].startswith("modeld: ValueError in heard.library at ")
    assert reported.count("\n") == 2


def test_without_the_handler_the_text_would_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        failing()
    except ValueError:
        unheard("unheard.library").exception("while sending")
    assert "Marked" in capsys.readouterr().err


def test_a_method_from_outside_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report("acp-bridge", "a\nb\x1b[2J", ValueError(SECRET))
    assert capsys.readouterr().err == "acp-bridge: ValueError in a\\nb\\u001b[2J at unknown place\n"
