"""Special tokens in contents are ordinary text under OpenVINO's tokenizer too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openvino_bench import Bench

from modeld.worker.chat import Chat
from modeld.worker.template_limits import RenderGuard

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(240)]
WORDS = ("a", "b c", " ", "\n", "<", "|>", "é", "日本", "x<", "<|im_", "end|>", "\t")


def test_no_content_makes_a_special_token(bench: Bench) -> None:
    engine, special = bench.engine, bench.engine.special
    chat = Chat(engine, bench.template, RenderGuard(60))
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= special.control

    def control(tokens: list[int]) -> list[int]:
        return [one for one in tokens if not engine.piece(one, special=False)]

    def text(tokens: list[int]) -> str:
        return b"".join(engine.piece(one, special=True) for one in tokens).decode("utf-8", "replace")

    def prompt(content: str) -> list[int]:
        return chat.prompt([{"role": "user", "content": content}], [], None).tokens

    own = control(prompt("zz"))
    assert own

    @given(st.lists(st.sampled_from([*WORDS, *sorted(special.control)]), max_size=8).map("".join))
    def holds(content: str) -> None:
        alone = chat.ordinary(content)
        assert control(alone) == []
        assert text(alone) == content
        whole = prompt(content)
        assert control(whole) == own
        rendered = bench.template.render([{"role": "user", "content": content}])
        assert text(whole) == rendered
        if not control(engine.tokenize(content, special=True)):
            assert whole == engine.tokenize(rendered, special=True)

    holds()
