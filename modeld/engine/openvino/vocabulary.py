"""Text to ids and ids to bytes, by the model's tokenizer graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from modeld.engine.continued import cut, find_separator, in_parts, one_by_one
from modeld.engine.contract import SpecialTokens
from modeld.engine.openvino.library import Library
from modeld.template.escape import SpecialTexts

#: Marks that end an answer in the families that name none or only one of theirs (as llama.cpp has it).
_END_TEXTS = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<turn|>",
        "<|end_of_turn|>",
        "<EOT>",
        "<|eot|>",
        "</s>",
        "<eos>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<reponame>",
        "<|file_sep|>",
    }
)
_FRAMED = re.compile(rb"[<\[]\S*[A-Za-z]\S*[>\]]")
_BYTE_TOKEN = re.compile(rb"<0x([0-9A-F]{2})>\Z")
#: llama.cpp adds a BOS token by itself for these byte-pair vocabularies unless the file says otherwise.
_BOS_BY_PRE = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken"})
_PROBE_WORDS = 70_000


class Vocabulary:
    """Two threads may use it: the tokenizer hands out its own infer requests."""

    def __init__(self, library: Library, folder: Path, facts: dict[str, Any]) -> None:
        self._tokenizer = library.genai.Tokenizer(str(folder))
        by_bytes: dict[bytes, int] = self._tokenizer.get_vocab()
        self.size = max(by_bytes.values()) + 1
        self._raw = [b""] * self.size
        for data, token in by_bytes.items():
            self._raw[token] = data
        self._control = self._find_control()
        sentencepiece = b"<0x0A>" in by_bytes
        self._pieces = [_plain(data) for data in self._raw] if sentencepiece else self._raw
        self._control_texts = SpecialTexts(map(self._text, self._control))
        spaced = b"".join(self.piece(one, special=False) for one in self._encode("a")) == b" a"
        self._separator = None if spaced else find_separator(self._encode, self._control_texts.texts)
        self.special = self._special(facts, by_bytes)
        self.template: str = self._tokenizer.get_original_chat_template()
        self.limit = self._find_limit()

    @property
    def native(self) -> Any:
        """The tokenizer object, for the pipeline."""
        return self._tokenizer

    def tokenize(self, text: str, special: bool) -> list[int]:
        """Ids of `text`; with `special` false, marks in it are taken apart and stay text."""
        if special:
            return self._encode(text)
        parts = cut(text, self._control_texts)
        if len(parts) == 1:
            return self._encode(text)
        if self._separator is None:
            return one_by_one(self._encode, self._encode, parts)
        return in_parts(self._encode, parts, self._separator)

    def piece(self, token: int, special: bool) -> bytes:
        """Bytes of one token; a control token is empty unless `special`."""
        if not 0 <= token < self.size:
            return b""
        if token in self._control:
            return self._raw[token] if special else b""
        return self._pieces[token]

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        clean = text.encode("utf-8", "replace").decode("utf-8")
        data = self._tokenizer.encode(clean, add_special_tokens=False).input_ids.data
        tokens: list[int] = data[0].tolist()
        return tokens

    def _find_limit(self) -> int | None:
        """Tokens after which this tokenizer silently cuts a text, None if it does not."""
        count = len(self._encode("a " * _PROBE_WORDS))
        return count if count < _PROBE_WORDS else None

    def _find_control(self) -> frozenset[int]:
        """Tokens that the detokenizer leaves out when asked to skip special ones."""
        each = [[token] for token in range(self.size)]
        shown = self._tokenizer.decode(each, skip_special_tokens=True)
        whole = self._tokenizer.decode(each, skip_special_tokens=False)
        return frozenset(token for token in range(self.size) if whole[token] and not shown[token])

    def _special(self, facts: dict[str, Any], by_bytes: dict[bytes, int]) -> SpecialTokens:
        stated: dict[str, Any] = facts.get("tokens") or {}
        bos = _known(stated.get("bos"), self._tokenizer.get_bos_token_id())
        eos = _known(stated.get("eos"), self._tokenizer.get_eos_token_id())
        end = {token for token in (eos, stated.get("eot"), stated.get("eom")) if token is not None}
        end.update(stated.get("extra_eos") or ())
        end.update(token for text in _END_TEXTS if (token := by_bytes.get(text.encode())) in self._control)
        fim = facts.get("fim") or (None, None, None)
        return SpecialTokens(
            bos=bos,
            bos_text="" if bos is None else self._text(bos),
            eos=eos,
            eos_text="" if eos is None else self._text(eos),
            add_bos=self._adds_bos(stated, facts, bos),
            end=frozenset(token for token in end if isinstance(token, int)),
            fim_prefix=fim[0],
            fim_suffix=fim[1],
            fim_middle=fim[2],
            control=self._control_texts.texts,
            user_defined=self._find_user_defined(by_bytes),
        )

    def _find_user_defined(self, by_bytes: dict[bytes, int]) -> frozenset[str]:
        """Texts framed like marks that are one token wherever they stand, and yet no control tokens."""
        found = set()
        for data, token in by_bytes.items():
            if token not in self._control and _FRAMED.fullmatch(data):
                text = data.decode("utf-8", "replace")
                if token in self._encode(f"a{text}a"):
                    found.add(text)
        return frozenset(found)

    def _adds_bos(self, stated: dict[str, Any], facts: dict[str, Any], bos: int | None) -> bool:
        if bos is None:
            return False
        said = stated.get("add_bos")
        if isinstance(said, bool):
            return said
        if facts.get("format") == "gguf":
            return facts.get("tokenizer") == "llama" or facts.get("tokenizer_pre") in _BOS_BY_PRE
        data = self._tokenizer.encode("a", add_special_tokens=True).input_ids.data
        return bool(data.size and data[0][0] == bos)

    def _text(self, token: int) -> str:
        return self._raw[token].decode("utf-8", "replace") if 0 <= token < self.size else ""


def _known(stated: Any, found: int) -> int | None:
    if isinstance(stated, int):
        return stated
    return found if found >= 0 else None


def _plain(data: bytes) -> bytes:
    """A sentencepiece entry as the bytes it stands for."""
    byte = _BYTE_TOKEN.match(data)
    return bytes([int(byte.group(1), 16)]) if byte else data.replace("▁".encode(), b" ")
