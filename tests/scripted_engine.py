"""An engine whose tokens a test writes, behind the real worker protocol, template and parsers.

A modeld that is started with `script_environ(script)` and `--backend scripted` runs it (script: JSON, `Script`).
Nothing that a user sees is proven by it alone. Tokens are UTF-8 bytes, the marks of `SPECIAL`, and the
pieces of the replies, so that a test decides where text is cut.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from modeld.engine.backends import ENGINE_VARIABLE
from modeld.engine.contract import (
    Aborted,
    AbortFlag,
    Account,
    Capabilities,
    DecodeOptions,
    LoadedModel,
    LoadRequest,
    ProgressCallback,
    Purpose,
    SpecialTokens,
)
from modeld.engine.dry_run import Sizes
from modeld.engine.footprint import resident_bytes
from modeld.engine.no_kv_parking import KeepsNothing
from modeld.engine.prefix import common_prefix
from modeld.output.grammar.values import Opened
from shared.catalog.identity import RequestedIdentity, ResolvedIdentity
from shared.errors import EngineFailed, ModelLoadFailed, UnsupportedFeature
from shared.protocol.api import Accelerator

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_FIRST_SPECIAL = 256
_FIRST_PIECE = 1024
_POLL_SECONDS = 0.002


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer: chosen when `when` stands in the prompt (last match wins), else in order, the last again.

    After its pieces the answer ends by itself unless `endless`, which repeats them. `crash_after` and
    `hang_after` count tokens: the process is killed, or stops without looking at its abort flag.
    """

    pieces: list[str]
    when: str | None = None
    endless: bool = False
    crash_after: int | None = None
    hang_after: int | None = None


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole script. Seconds; `chunk` in tokens; `load_failure` is the reason of a load that fails.

    `devices` are the discrete accelerators that a load would use; `memory` names a file with the total and the free
    bytes of each, as JSON, which is read whenever they are asked for.
    """

    replies: list[Reply] = []
    template: str = CHATML
    load_s: float = 0.0
    load_failure: str | None = None
    load_crash: bool = False
    prefill_token_s: float = 0.0
    token_s: float = 0.0
    chunk: int = 256
    ballast_bytes: int = 0
    devices: list[str] = []
    memory: str = ""


def script_environ(script: Path) -> dict[str, str]:
    """What makes a worker run this engine with that script."""
    return {ENGINE_VARIABLE: f"{Path(__file__).resolve()}{os.pathsep}{script}"}


def engine(abort: AbortFlag, argument: str) -> ScriptedEngine:
    """What a worker calls (`modeld.engine.factory`)."""
    return ScriptedEngine(abort, Path(argument))


class ScriptedEngine(KeepsNothing):
    """`modeld.engine.contract.Engine` that says what the script says."""

    holds_lock: ClassVar[bool] = False

    def __init__(self, abort: AbortFlag, script: Path) -> None:
        self._abort = abort
        self._path = script
        self._script = Script()
        self._pieces: dict[int, bytes] = {}
        self._ids: dict[str, int] = {}
        self._warm: list[int] = []
        self._beside: list[int] | None = None  # the chat's lane while a fill runs in its own
        self._prompt: list[int] = []
        self._done = 0
        self._turns = 0
        self._ballast = b""

    def prepare(self) -> str:
        """Read the script."""
        self._script = msgspec.json.decode(self._path.read_bytes(), type=Script)
        return "scripted 1"

    def accelerators(self, identity: RequestedIdentity) -> tuple[Accelerator, ...]:
        """The script's `devices`, for whoever does not ask for the CPU."""
        if identity.device == "CPU":
            return ()
        path = self._script.memory
        memory: dict[str, tuple[int, int]] = msgspec.json.decode(Path(path).read_bytes()) if path else {}
        told = {name: memory.get(name, (0, 0)) for name in self._script.devices}
        return tuple(Accelerator(name=name, total_bytes=size[0], free_bytes=size[1]) for name, size in told.items())

    def load(self, request: LoadRequest, progress: ProgressCallback) -> LoadedModel:
        """Takes `load_s`, in steps that can be cancelled."""
        script, asked = self._script, request.identity
        if script.load_crash:
            _crash()
        steps = 20
        for step in range(steps):
            progress(step, steps)
            self._pause(script.load_s / steps)
        if script.load_failure is not None:
            raise ModelLoadFailed(model=asked.name, stage="weights", reason=script.load_failure)
        self._ballast = b"" if request.vocabulary_only else bytes(1) * script.ballast_bytes
        for text in {piece for reply in script.replies for piece in reply.pieces}:
            self._intern(text)
        identity = ResolvedIdentity(
            backend="scripted",
            name=asked.name,
            digest=asked.digest,
            path=asked.path,
            runtime_digest="scripted 1",
            device="CPU",
            num_ctx=request.num_ctx,
            num_batch=script.chunk,
            gpu_layers=0,
            tensor_split=(),
            flash_attention=False,
            kv_type="f16",
            template_digest="",
            bos_policy="",
            reasoning_format="",
            adapters=asked.adapters,
        )
        capabilities = Capabilities(reuse_counts=True, trim=True, cancel_prefill="token", cancel_load=True, fim=True)
        return LoadedModel(
            identity=identity,
            capabilities=capabilities,
            measured_bytes=resident_bytes(),
            template=script.template,
        )

    def dry_run(
        self, request: LoadRequest, contexts: Sequence[int], began: Callable[[str], None]
    ) -> tuple[LoadedModel, list[Sizes]]:
        """No script is known to fail before its load."""
        del contexts, began
        return self.load(request, lambda done, of: None), []

    def _intern(self, text: str) -> int:
        known = self._ids.get(text)
        if known is None:
            known = self._ids[text] = _FIRST_PIECE + len(self._ids)
            self._pieces[known] = text.encode("utf-8", "surrogateescape")
        return known

    def _pause(self, seconds: float) -> None:
        """Wait, looking at the abort flag."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._abort:
                raise Aborted
            time.sleep(min(left, _POLL_SECONDS))
        if self._abort:
            raise Aborted

    @property
    def threads(self) -> int:
        """Nothing computes."""
        return 0

    @property
    def image_encoder(self) -> None:
        """It has no vision."""
        return

    @property
    def special(self) -> SpecialTokens:
        """Marks of the small vocabulary."""
        ids = {text: _FIRST_SPECIAL + index for index, text in enumerate(SPECIAL)}
        return SpecialTokens(
            bos=ids["<|endoftext|>"],
            bos_text="<|endoftext|>",
            eos=ids["<|im_end|>"],
            eos_text="<|im_end|>",
            end=frozenset((ids["<|endoftext|>"], ids["<|im_end|>"])),
            fim_prefix=ids["<|fim_prefix|>"],
            fim_suffix=ids["<|fim_suffix|>"],
            fim_middle=ids["<|fim_middle|>"],
            control=frozenset(SPECIAL),
        )

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """A byte a token; marks are one token each when `special`."""
        parts = re.split("(" + "|".join(map(re.escape, SPECIAL)) + ")", text) if special else [text]
        ids: list[int] = []
        for part in parts:
            if special and part in SPECIAL:
                ids.append(_FIRST_SPECIAL + SPECIAL.index(part))
            else:
                ids.extend(part.encode("utf-8", "replace"))
        return ids

    def piece(self, token: int, *, special: bool) -> bytes:
        """As the contract says."""
        if token < _FIRST_SPECIAL:
            return bytes((token,))
        if token < _FIRST_PIECE:
            return SPECIAL[token - _FIRST_SPECIAL].encode() if special else b""
        return self._pieces[token]

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """One conversation is warm: the last."""
        return min(common_prefix(self._warm, list(tokens)), len(tokens) - 1)

    def ensure_prefix(self, tokens: Sequence[int], purpose: Purpose = "turn", conversation: str | None = None) -> int:
        """As the contract says."""
        del conversation
        if purpose == "fill":
            self._beside, self._warm = self._warm, []
        self._prompt = list(tokens)
        self._done = self.common_prefix(tokens)
        self._warm = self._prompt[: self._done]
        return self._done

    def prefill_suffix(self, options: DecodeOptions | None, progress: ProgressCallback) -> None:
        """Takes `prefill_token_s` a token, in chunks."""
        del options
        while self._done < len(self._prompt):
            end = min(self._done + self._script.chunk, len(self._prompt))
            self._pause((end - self._done) * self._script.prefill_token_s)
            self._done = end
            self._warm = self._prompt[:end]
            progress(end, len(self._prompt))

    def decode(self, options: DecodeOptions) -> Iterator[int]:
        """The reply's pieces, then the end-of-turn token."""
        reply = self._reply()
        self._turns += 1
        for count, token in enumerate(self._tokens(reply)):
            if count == options.max_tokens:
                return
            if count == reply.crash_after:
                _crash()
            if count == reply.hang_after:
                time.sleep(3600)
            self._pause(self._script.token_s)
            yield token
            self._warm.append(token)

    def _reply(self) -> Reply:
        replies = self._script.replies
        if not replies:
            raise EngineFailed(reason="the script has no reply")
        text = b"".join(self.piece(token, special=True) for token in self._prompt).decode("utf-8", "replace")
        matching = [reply for reply in replies if reply.when is not None and reply.when in text]
        in_order = [reply for reply in replies if reply.when is None]
        if matching:
            return matching[-1]
        if not in_order:
            raise EngineFailed(reason="the script has no reply to this prompt")
        return in_order[min(self._turns, len(in_order) - 1)]

    def _tokens(self, reply: Reply) -> Iterator[int]:
        marks = {text: _FIRST_SPECIAL + index for index, text in enumerate(SPECIAL)}
        while True:
            for piece in reply.pieces:
                yield marks.get(piece, self._ids[piece])
            if not reply.endless:
                yield marks["<|im_end|>"]
                return

    def constrain(self, opened: Opened) -> None:
        """A script says what it says."""
        del opened

    def end_turn(self) -> None:
        """A fill leaves the chat's lane as it was."""
        if self._beside is not None:
            self._warm, self._beside = self._beside, None

    def valid(self) -> bool:
        """Nothing can go wrong that the script does not say."""
        return True

    def embed(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Raises UnsupportedFeature."""
        del texts
        raise UnsupportedFeature(feature="embeddings")

    def measure(self) -> Account:
        """As the contract says."""
        return Account(rss_bytes=resident_bytes(), lanes_used=1 if self._warm else 0)

    def close(self) -> None:
        """Free the ballast."""
        self._ballast = b""


def _crash() -> None:
    """End as a fault in native code ends a process."""
    if sys.platform == "win32":
        os.kill(os.getpid(), signal.SIGTERM)  # ends at once there
    else:
        os.kill(os.getpid(), signal.SIGKILL)
