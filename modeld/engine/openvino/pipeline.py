"""One continuous-batching pipeline, stepped by us: a request at a time, a chunk or a token a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from modeld.engine.contract import AbortFlag, DecodeOptions, PoolExhausted
from modeld.engine.openvino.blocks import BLOCK, BlockLedger
from modeld.engine.openvino.chunk_pace import ChunkPace
from modeld.engine.openvino.library import CHUNK, Library, properties, reason_of
from modeld.engine.openvino.options import generation_config
from modeld.engine.openvino.vocabulary import Vocabulary
from shared.errors import EngineFailed, UnsupportedFeature

#: Blocks beside the conversations' own: one may be allocated ahead, one is shared at a fork.
_SPARE_BLOCKS = 8


#: What stands in a message about a schema: its own words, or the name of the library that reads it.
_GRAMMAR_WORDS = ("json", "grammar")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`lanes` conversations of `num_ctx` tokens stay in memory; at most `batch` tokens are evaluated in a step.

    `block_bytes` is what a block of the pool takes, 0 where the model does not say.
    """

    device: str
    num_ctx: int
    lanes: int
    kv_type: str
    threads: int
    batch: int = CHUNK
    block_bytes: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of the pool."""
        return self.lanes * -(-self.num_ctx // BLOCK) + _SPARE_BLOCKS


class Pipeline:
    """Holds the model. After an exception `sound` tells whether the pipeline is empty and usable again."""

    def __init__(
        self,
        library: Library,
        folder: Path,
        vocabulary: Vocabulary,
        plan: Plan,
        tensor: Callable[[Sequence[int]], Any] | None = None,
    ) -> None:
        """`tensor` makes of a prompt what the model takes, where that is not its ids. Raises RuntimeError."""
        scheduler = library.genai.SchedulerConfig()
        scheduler.num_kv_blocks = plan.blocks
        scheduler.max_num_batched_tokens = plan.batch
        scheduler.max_num_seqs = 1
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        self._library = library
        self._tensor = tensor or library.tensor
        self._end = vocabulary.special.end
        self._pace = ChunkPace(plan.batch)
        self._native = library.genai.ContinuousBatchingPipeline(
            str(folder), vocabulary.native, scheduler, plan.device, **properties(plan.threads, plan.kv_type)
        )
        self._handle: Any = None
        self._number = 0
        self.ledger = BlockLedger(plan.blocks)
        self.mismatches = 0
        self.sound = True

    def prefill(
        self,
        tokens: Sequence[int],
        options: DecodeOptions | None,
        progress: Callable[[int, int], None],
        abort: AbortFlag,
    ) -> list[int]:
        """Evaluate a prompt; the first sampled token, or [] when the flag was seen between two chunks."""
        held, total = self.ledger.match(tokens), len(tokens)
        while not abort:
            end = self._part(held, total)
            if end < total:
                self._evaluate(tokens[:end], held)
                held = end
                progress(held, total)
                continue
            self._begin(tokens, options)
            held = max(held, self.ledger.held)
            while not abort:
                begin, held = held, min(held + self._pace.most, total)
                sampled = self._timed(begin, held)
                progress(total if sampled else held, total)
                if sampled or held == total:
                    return sampled or self._until_sampled(abort)
                if self._pace.slow:  # what is held are whole blocks: the rest goes in parts
                    self.finish()
                    break
        return []

    def _part(self, held: int, total: int) -> int:
        """Where a part ends that is evaluated by itself; the whole, where the rest may go in steps of the most.

        Every chunk ends with a block. The pipeline names a block by what it is meant to hold when it is taken, not
        when it is computed: a cancel between two chunks would leave a half-computed block that a later prompt trusts
        (measured: log-probabilities off by 1.0). It renames a block that is filled up only when another follows it,
        hence one block more.
        """
        pace, filled = self._pace, -(-held // BLOCK) * BLOCK
        if not pace.slow and filled == held:
            return total
        whole = (held + pace.chunk) // BLOCK * BLOCK
        return min(max(whole, filled + BLOCK), total)

    def _evaluate(self, tokens: Sequence[int], held: int) -> None:
        """A beginning of a prompt as a request of its own. Its blocks stay, and the next one takes them over."""
        self._begin(tokens, None)
        if not self._timed(held, len(tokens)):
            while self._native.has_non_finished_requests():  # the books were wrong: less was in memory
                self.step()
        self.finish()

    def _timed(self, begin: int, held: int) -> list[int]:
        began = time.perf_counter()
        sampled = self.step(held)
        self._pace.took(held - begin, time.perf_counter() - began)
        return sampled

    def step(self, held: int | None = None) -> list[int]:
        """Run one step; the tokens it sampled. Raises PoolExhausted, EngineFailed, UnsupportedFeature."""
        try:
            self._native.step()
        except RuntimeError as error:
            reason = reason_of(error)
            self.finish()
            if any(word in str(error).lower() for word in _GRAMMAR_WORDS):
                raise UnsupportedFeature(feature=f"json_schema: {reason}") from error
            raise EngineFailed(reason=reason) from error
        if held is not None:
            self.ledger.extend(held)
            self._compare()
        return self._read()

    def _begin(self, tokens: Sequence[int], options: DecodeOptions | None) -> None:
        try:
            config = generation_config(self._library.genai, options, self._end)
            self._number += 1
            self._handle = self._native.add_request(self._number, self._tensor(tokens), config)
        except RuntimeError as error:
            raise EngineFailed(reason=reason_of(error)) from error
        self.ledger.begin(tokens)

    def _until_sampled(self, abort: AbortFlag) -> list[int]:
        """The books were wrong (a mismatch is counted): go on until the prompt is really evaluated."""
        while not abort:
            sampled = self.step()
            if sampled or not self._native.has_non_finished_requests():
                return sampled
        return []

    def _read(self) -> list[int]:
        tokens: list[int] = []
        while self._handle.can_read():
            for output in self._handle.read().values():
                tokens += output.generated_ids
        if not tokens and self._handle.get_status() == self._library.genai.GenerationStatus.IGNORED:
            self.finish()
            raise PoolExhausted
        return tokens

    def _compare(self) -> None:
        """The pipeline tells how full its pool is: if that is not what the books say, they are closed."""
        used = round(self._native.get_metrics().cache_usage * self.ledger.count / 100)
        if used and used != self.ledger.blocks_in_use:
            self.mismatches += 1
            self.ledger.forget()

    @property
    def running(self) -> bool:
        """Whether the request still wants steps."""
        return self._handle is not None and bool(self._native.has_non_finished_requests())

    def finish(self) -> None:
        """End the request on any path: an unfinished one is stopped, which costs no evaluation."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        self.ledger.release()
        try:
            if self._native.has_non_finished_requests():
                handle.stop()
                self._native.step()
            self.sound = not self._native.has_non_finished_requests()
        except RuntimeError:
            self.sound = False

    def close(self) -> None:
        """Free the model."""
        self.finish()
        self._native = None
