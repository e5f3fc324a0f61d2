"""The engine in this process, and the pipeline called directly as the yardstick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from modeld.engine.contract import Aborted, AbortFlag, DecodeOptions, LoadedModel, LoadRequest
from modeld.engine.openvino.engine import OpenVinoEngine
from modeld.engine.openvino.library import properties
from modeld.template.render import Template
from shared.catalog.identity import RequestedIdentity

#: Tokens of a conversation, and of a chunk: small, so that few tokens fill the pool and few make several chunks.
NUM_CTX = 448
CHUNK = 96
SHORT = 8


def request_for(path: Path, **identity: Any) -> LoadRequest:
    """A load of `path` as the daemon would ask for it."""
    asked: dict[str, Any] = {"backend": "openvino", "name": path.stem, "digest": f"test-{path.stem}", "path": str(path)}
    asked |= {"num_batch": CHUNK, **identity}
    return LoadRequest(identity=RequestedIdentity(**asked), model={}, num_ctx=NUM_CTX, threads=1)


class Bench:
    """The engine in this process, asked in tokens."""

    def __init__(self, engine: OpenVinoEngine, loaded: LoadedModel, abort: AbortFlag) -> None:
        self.engine = engine
        self.loaded = loaded
        self.abort = abort
        self.template = Template(loaded.template, engine.special.bos_text, engine.special.eos_text)
        self.reused = 0

    def render(self, *messages: dict[str, Any]) -> list[int]:
        """The tokens of a conversation."""
        return self.engine.tokenize(self.template.render(list(messages)), special=True)

    def ask(
        self, tokens: Sequence[int], options: DecodeOptions | None = None, on_chunk: Callable[[int], None] | None = None
    ) -> list[int] | None:
        """The answer's tokens, None when it was aborted."""
        options = options or DecodeOptions(max_tokens=SHORT)
        self.reused = self.engine.ensure_prefix(tokens)
        try:
            self.engine.prefill_suffix(options, lambda done, _: on_chunk(done) if on_chunk else None)
            return list(self.engine.decode(options))
        except Aborted:
            return None
        finally:
            self.engine.end_turn()
            self.abort.clear()

    def text(self, tokens: Sequence[int]) -> str:
        """What a reader would see of an answer."""
        return b"".join(self.engine.piece(token, special=False) for token in tokens).decode()


class Direct:
    """The pipeline alone, without a prefix cache: what an answer is when nothing is reused."""

    def __init__(self, engine: OpenVinoEngine, folder: Path) -> None:
        library, vocabulary = engine._library, engine._vocabulary
        assert library is not None
        assert vocabulary is not None
        scheduler = library.genai.SchedulerConfig()
        scheduler.num_kv_blocks = NUM_CTX // 32 + 8
        scheduler.max_num_batched_tokens = NUM_CTX
        scheduler.max_num_seqs = 1
        scheduler.enable_prefix_caching = False
        plan = engine._plan
        assert plan is not None
        self._library = library
        self._tensor = engine._rows.tensor if engine._rows is not None else library.tensor
        self._end = vocabulary.special.end
        self._pipeline = library.genai.ContinuousBatchingPipeline(
            str(folder), vocabulary.native, scheduler, "CPU", **properties(plan.threads, plan.kv_type)
        )

    def ask(self, tokens: Sequence[int], max_tokens: int = SHORT) -> list[int]:
        """Greedy, by the library's own `generate`."""
        config = self._library.genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.do_sample = False
        config.stop_token_ids = set(self._end)
        (result,) = self._pipeline.generate([self._tensor(tokens)], [config])
        answer: list[int] = list(result.m_generation_ids[0])
        return answer
