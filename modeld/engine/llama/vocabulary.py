"""Text to ids and ids to bytes. The native vocabulary is constant, so two threads may use it."""

from __future__ import annotations

import ctypes
from typing import Any

from modeld.engine.contract import SpecialTokens
from modeld.engine.llama.token_cache import TokenCache

_PIECE_BYTES = 256


class Vocabulary:
    """The vocabulary of one loaded model (weights or not)."""

    def __init__(self, api: Any, model: int) -> None:
        self._api = api
        self._vocab = api.llama_model_get_vocab(model)
        self.size: int = api.llama_vocab_n_tokens(self._vocab)
        self.special = self._special()
        marks = {token: self._text(token) for token in self.special.end}
        self._cache = TokenCache(lambda text: self._ids(text, True), marks)

    @property
    def pointer(self) -> int:
        """The native object, for samplers."""
        pointer: int = self._vocab
        return pointer

    def tokenize(self, text: str, special: bool) -> list[int]:
        """Ids of `text`; nothing is added in front or behind. With `special`, what was sent before is known."""
        return self._cache.tokens(text) if special else self._ids(text, False)

    def _ids(self, text: str, special: bool) -> list[int]:
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        ids = (ctypes.c_int32 * room)()
        count = self._api.llama_tokenize(self._vocab, data, len(data), ids, room, False, special)
        if count < 0:
            ids = (ctypes.c_int32 * -count)()
            count = self._api.llama_tokenize(self._vocab, data, len(data), ids, -count, False, special)
        return ids[:count]

    def piece(self, token: int, special: bool) -> bytes:
        """Bytes of one token, b"" for a control token unless `special`."""
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        size = self._api.llama_token_to_piece(self._vocab, token, buffer, _PIECE_BYTES, 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = self._api.llama_token_to_piece(self._vocab, token, buffer, -size, 0, special)
        return buffer.raw[: max(size, 0)]

    def _special(self) -> SpecialTokens:
        api, vocab = self._api, self._vocab
        bos, eos = _known(api.llama_vocab_bos(vocab)), _known(api.llama_vocab_eos(vocab))
        end = frozenset(token for token in range(self.size) if api.llama_vocab_is_eog(vocab, token))
        control, user_defined = self._single()
        return SpecialTokens(
            bos=bos,
            bos_text=self._text(bos),
            eos=eos,
            eos_text=self._text(eos),
            add_bos=bool(api.llama_vocab_get_add_bos(vocab)),
            end=end,
            fim_prefix=_known(api.llama_vocab_fim_pre(vocab)),
            fim_suffix=_known(api.llama_vocab_fim_suf(vocab)),
            fim_middle=_known(api.llama_vocab_fim_mid(vocab)),
            control=control,
            user_defined=user_defined,
        )

    def _single(self) -> tuple[frozenset[str], frozenset[str]]:
        """Texts that are looked for before anything is merged: control tokens and the unknown one, and further ones."""
        api, vocab = self._api, self._vocab
        control, user_defined = set(), set()
        for token in range(self.size):
            kind = api.llama_vocab_get_attr(vocab, token)
            if kind & (api.LLAMA_TOKEN_ATTR_CONTROL | api.LLAMA_TOKEN_ATTR_UNKNOWN):
                control.add(self._raw(token))
            elif kind & api.LLAMA_TOKEN_ATTR_USER_DEFINED:
                user_defined.add(self._raw(token))
        return frozenset(control), frozenset(user_defined - control)

    def _raw(self, token: int) -> str:
        text: bytes = self._api.llama_vocab_get_text(self._vocab, token)
        return text.decode("utf-8", "replace")

    def _text(self, token: int | None) -> str:
        return "" if token is None else self.piece(token, True).decode("utf-8", "replace")


def _known(token: int) -> int | None:
    return None if token < 0 else token
