"""Programs of the OpenAI protocol with real weights: what only a model that understands can answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clients.home import Home
from clients.openai_checks import CHECKS, Subject
from clients.openai_programs import Place, continue_, zed
from http_world import serving

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.llama, pytest.mark.timeout(300)]
#: `make sdks` runs all of them, `make programs` more programs.
CHECKED = ("json_schema", "tools_in_pieces", "completions", "embeddings")


def test_programs_get_structure_tools_texts_and_vectors_from_the_shared_model(llama: Home) -> None:
    model = llama.model("smollm2")
    world: Any = SimpleNamespace(folder=llama.folder, environ=llama.environ)
    with serving(world) as server:
        subject = Subject(server.where["url"], server.key, model)
        for check in CHECKED:
            CHECKS[check](subject)
        place = Place(llama.folder, llama.work, server, model)
        assert "Paris" in continue_(place)
        assert zed(place).strip()
    assert llama.status()["active"]["name"] == model
    assert len([one for one in llama.processes() if "serve" not in one.cmdline()]) == 1, "one worker holds it for all"
