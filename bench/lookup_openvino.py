"""OpenVINO's own prompt lookup under our stepping: `python -m bench.lookup_openvino`, for docs/design/engines.md."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.guessing import edit
from bench.table import Table
from modeld.engine.cores import engine_threads
from modeld.engine.openvino.convert import converted
from modeld.engine.openvino.library import CHUNK, Library, properties
from modeld.engine.openvino.vocabulary import Vocabulary
from modeld.template.render import Template
from weights import SMOLLM2, fetch

TOKENS = 120
ROUNDS = 4
GUESSED = 5
GRAM = 3


class Stepped:
    """A pipeline as the product has it, with or without prompt lookup."""

    def __init__(self, library: Library, folder: Path, *, lookup: bool) -> None:
        self._genai = library.genai
        self._library = library
        self._lookup = lookup
        self.vocabulary = Vocabulary(library, folder, {})
        scheduler = self._genai.SchedulerConfig()
        scheduler.num_kv_blocks = 200
        scheduler.max_num_batched_tokens = CHUNK
        scheduler.max_num_seqs = 1
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        more = {"prompt_lookup": True} if lookup else {}
        self._native = self._genai.ContinuousBatchingPipeline(
            str(folder), self.vocabulary.native, scheduler, "CPU", **properties(engine_threads(), "f32"), **more
        )
        self._number = 0

    def answer(self, prompt: list[int]) -> tuple[list[int], int, float]:
        """The greedy answer, its steps behind the first token, and its tokens a second."""
        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.do_sample = TOKENS, False
        if self._lookup:
            config.num_assistant_tokens, config.max_ngram_size = GUESSED, GRAM
        self._number += 1
        handle = self._native.add_request(self._number, self._library.tensor(prompt), config)
        said: list[int] = []
        steps, first = 0, 0.0
        while self._native.has_non_finished_requests():
            self._native.step()
            steps += bool(said)
            while handle.can_read():
                said += [token for output in handle.read().values() for token in output.generated_ids]
            first = first or (time.perf_counter() if said else 0.0)
        return said, steps, (len(said) - 1) / (time.perf_counter() - first)


def main() -> int:
    """Both kinds of answer, with and without; the best of the rounds counts."""
    table, library = Table(), Library()
    with tempfile.TemporaryDirectory(prefix="md-lookup-") as name:
        folder, _ = converted(library, fetch(SMOLLM2), "bench", Path(name), "smollm2")
        pipelines = [Stepped(library, folder, lookup=lookup) for lookup in (False, True)]
        vocabulary = pipelines[0].vocabulary
        template = Template(vocabulary.template, vocabulary.special.bos_text, vocabulary.special.eos_text)
        story: list[dict[str, Any]] = [{"role": "user", "content": "Write a story about the sea."}]
        for what, messages in (("a file said again", edit(1)), ("a story", story)):
            prompt = vocabulary.tokenize(template.render(messages, [], None), True)
            rounds = [[one.answer(prompt) for one in pipelines] for _ in range(ROUNDS)]
            plain, guessing = (max(each[side][2] for each in rounds) for side in (0, 1))
            same = rounds[-1][0][0] == rounds[-1][1][0]
            steps = [rounds[-1][side][1] for side in (0, 1)]
            table.add(
                f"openvino: {what}, prompt lookup",
                f"{guessing:.1f} tokens/s in {steps[1]} steps, without {plain:.1f} in {steps[0]}: "
                f"{guessing / plain:.2f} times; the same answer: {same}",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
