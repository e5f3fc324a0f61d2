"""The official Python SDK as a program uses it. `make sdks` runs all of its checks, with others, on real weights."""

from __future__ import annotations

import pytest

from clients.openai_checks import CHECKS, Subject
from http_world import HttpServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]
#: Those that need no model that understands them.
SPOKEN = (
    "models", "whole", "streamed", "usage_of_a_stream", "cached_tokens", "system_and_developer", "parallel", "hung_up",
    "unknown_model", "wrong_key", "wrong_value", "unknown_parameter", "unmet_parameter", "too_long", "unseen_image",
)  # fmt: skip


@pytest.fixture(scope="module")
def subject(server: HttpServer) -> Subject:
    return Subject(server.where["url"], server.key, "alpha")


@pytest.mark.parametrize("check", SPOKEN)
def test_the_sdk_gets_what_it_expects(subject: Subject, check: str) -> None:
    CHECKS[check](subject)
