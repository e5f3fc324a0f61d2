"""Reads an OpenVINO IR folder: `openvino_model.xml` and `.bin`, the configs beside them, the template.

A model with vision is several such graphs in one folder (see `several`).

The XML is read once in pieces, never parsed as a tree (it may hold 100,000 layers): constants give the
extent the `.bin` must have, state variables give the shape of the KV memory, the runtime info the weight
format. Exports of optimum have a `config.json`; models that GenAI saved from a GGUF do not, and then
the variables alone say what there is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from shared.catalog.entry import Facts, KvSpan, SpecialTokens
from shared.catalog.fingerprint import long_path
from shared.catalog.formats.facts import digest_text
from shared.catalog.formats.sampling_defaults import from_generation_config
from shared.catalog.formats.window import READ_LIMIT, HeaderRejected
from shared.catalog.multi_graph import LANGUAGE, of_several
from shared.catalog.scan import IR_LANGUAGE, IR_MODEL, graphs
from shared.catalog.template_detection import detect

MAX_JSON = 16 * 1024 * 1024
MAX_TEMPLATE = 1024 * 1024
CHUNK = 1024 * 1024
OVERLAP = 8 * 1024
MAX_LAYERS = 1024
MODEL = IR_MODEL.removesuffix(".xml")
_TOKENIZER = "tokenizer_config.json"
#: Where the configuration of a model with vision keeps what its language part is.
_TEXT = ("text_config", "llm_config")

_CONST = re.compile(rb'offset="(\d{1,18})" size="(\d{1,18})"')
_VARIABLE = re.compile(rb'variable_id="([^"]{1,200})"[^>]{0,200}?variable_shape="([^"]{0,100})"')
_INPUT = re.compile(
    rb'type="Parameter"[^>]{0,100}>\s{0,20}<data shape="([^"]{0,100})"[^>]{0,100}>\s{0,20}<output>\s{0,20}'
    rb'<port[^>]{0,100}? names="([^",]{1,200})'
)
_LAYER = re.compile(rb"past_key_values\.(\d{1,4})\.(?:decoder\.)?(key|value)")
_INFO = re.compile(rb'<(chat_template|bos_token_id|eos_token_id|pad_token_id) value="([^"]*)"')
_ENTITY = re.compile(r"&(?:#(\d{1,7})|#x([0-9a-fA-F]{1,6})|(lt|gt|amp|quot|apos));")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_MODE = re.compile(rb'<mode value="([a-z0-9_]{1,20})"')
_EMBEDDERS = re.compile(r"(?:bert|roberta|mpnet|electra|nomic|gte|e5)", re.IGNORECASE)


def read_folder(folder: str, *, first: bool = False) -> Facts:
    """The facts of an IR folder. With `first`, the XML is not read. Raises HeaderRejected."""
    names = _listing(folder)
    several = IR_LANGUAGE in names and IR_MODEL not in names
    parts, main = (graphs(names), LANGUAGE) if several else ([MODEL], MODEL)
    _require(names, parts)
    xmls = {part: _Xml() if first else _scan(os.path.join(folder, f"{part}.xml")) for part in parts}
    sizes = [_whole(folder, part, xml) for part, xml in xmls.items()]
    facts = _facts(_json(folder, "config.json", names), xmls[main], folder, names)
    facts = msgspec.structs.replace(facts, weights_bytes=sum(sizes), complete=not first)
    return of_several(facts, parts, None if first else xmls[main].inputs) if several else facts


class _Xml(msgspec.Struct):
    """What the scan of the XML found."""

    extent: int = 0
    kv: dict[int, list[int]] = {}
    mode: str = ""
    inputs: dict[str, str] = {}


def _facts(config: dict[str, Any], xml: _Xml, folder: str, names: set[str]) -> Facts:
    info = _tokenizer_info(folder, names)
    template = _template(folder, names) or info.get("chat_template", "")
    text: dict[str, Any] = next((config[key] for key in _TEXT if isinstance(config.get(key), dict)), config)
    heads = _int(text.get("num_attention_heads"))
    dim = _int(text.get("head_dim")) or (_int(text.get("hidden_size")) // heads if heads else 0)
    kv_heads = _int(text.get("num_key_value_heads")) or heads
    layers = _int(text.get("num_hidden_layers")) or len(xml.kv)
    marks = detect(template)
    generation = _json(folder, "generation_config.json", names)
    embedding = "modules.json" in names or bool(_EMBEDDERS.search(_text(config.get("model_type"))))
    return Facts(
        format="openvino",
        architecture=_text(config.get("model_type")),
        title=_text(config.get("_name_or_path"))[:200],
        quantization=_quantization(xml.mode, folder),
        context_train=_int(text.get("max_position_embeddings")),
        n_layers=layers,
        n_embd=_int(text.get("hidden_size")),
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim_k=dim,
        head_dim_v=dim,
        vocab_size=_int(text.get("vocab_size")),
        sliding_window=_int(text.get("sliding_window")),
        kv=_kv(xml, text, layers, kv_heads * dim),
        template=template,
        template_digest=digest_text(template),
        tokens=_tokens((text, config, generation), info, _json(folder, _TOKENIZER, names)),
        tools=marks.tools,
        thinking=marks.thinking,
        embedding_only=embedding,
        sampling=from_generation_config(generation),
        unusable="" if "openvino_tokenizer.xml" in names else "openvino_tokenizer.xml is missing; convert it again",
    )


def _kv(xml: _Xml, text: dict[str, Any], layers: int, width: int) -> tuple[KvSpan, ...]:
    kinds = text.get("layer_types")
    window = _int(text.get("sliding_window"))
    per_layer = []
    for layer in range(min(layers, MAX_LAYERS)):
        k, v = (*xml.kv.get(layer, ()), width, width)[:2] if not xml.kv or layer in xml.kv else (0, 0)
        sliding = isinstance(kinds, list) and layer < len(kinds) and kinds[layer] == "sliding_attention"
        per_layer.append((k, v, window if sliding else 0))
    return tuple(KvSpan(len(list(run)), *key) for key, run in groupby(per_layer))


def _tokens(configs: Sequence[dict[str, Any]], info: dict[str, str], tokenizer: dict[str, Any]) -> SpecialTokens:
    """Ids from the last of the configs that tells them, else what the tokenizer's IR says."""
    ids_of_ir = {key: int(value) for key, value in info.items() if key.endswith("_id") and value.isdigit()}
    stated = ids_of_ir | {key: value for one in configs for key, value in one.items() if value is not None}
    eos = stated.get("eos_token_id")
    several = [_id(item) for item in eos] if isinstance(eos, list) else [_id(eos)]
    ids = [item for item in several if item is not None]
    add_bos = tokenizer.get("add_bos_token")
    texts = {}
    for key in ("bos", "eos"):
        value = tokenizer.get(f"{key}_token")
        value = value.get("content") if isinstance(value, dict) else value
        number = _id(stated.get("bos_token_id")) if key == "bos" else (ids[0] if ids else None)
        if isinstance(value, str) and number is not None:
            texts[number] = value[:200]
    return SpecialTokens(
        bos=_id(stated.get("bos_token_id")),
        eos=ids[0] if ids else None,
        pad=_id(stated.get("pad_token_id")),
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        texts=texts,
        extra_eos=tuple(ids[1:17]),
    )


def _template(folder: str, names: set[str]) -> str:
    """chat_template.jinja, else chat_template.json, else the tokenizer's config (its "default" of several)."""
    if "chat_template.jinja" in names:
        return _read(os.path.join(folder, "chat_template.jinja"), MAX_TEMPLATE).decode("utf-8", "replace")
    for name in ("chat_template.json", _TOKENIZER):
        value = _json(folder, name, names).get("chat_template")
        if isinstance(value, list):
            by_name = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
            value = by_name.get("default")
        if isinstance(value, str) and value:
            return value[:MAX_TEMPLATE]
    return ""


def _tokenizer_info(folder: str, names: set[str]) -> dict[str, str]:
    """What the runtime info at the end of the tokenizer's XML says: chat template and token ids."""
    if "openvino_tokenizer.xml" not in names:
        return {}
    path = os.path.join(folder, "openvino_tokenizer.xml")
    tail = _read(path, MAX_TEMPLATE, from_end=True)
    return {match[1].decode(): _unescaped(match[2].decode("utf-8", "replace")) for match in _INFO.finditer(tail)}


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[3]:
            return _NAMED[match[3]]
        number = int(match[1]) if match[1] else int(match[2], 16)
        return chr(number) if number < 0x110000 else "\ufffd"

    return _ENTITY.sub(one, text)


def _quantization(mode: str, folder: str) -> str:
    if mode:
        return mode.split("_", maxsplit=1)[0].upper()
    found = re.search(r"(?:^|[-_.])(int4|int8|fp16|nf4|mxfp4)(?:$|[-_.])", os.path.basename(folder).lower())
    return found.group(1).upper() if found else ""


def _scan(path: str) -> _Xml:
    found = _Xml()
    size = _size(path)
    if size > READ_LIMIT:
        raise HeaderRejected("limit", f"{os.path.basename(path)} is larger than {READ_LIMIT} bytes")
    carried = b""
    try:
        with open(long_path(path), "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                data = carried + chunk
                _collect(data, found)
                carried = data[-OVERLAP:]
    except OSError as error:
        raise HeaderRejected("unreadable", error.strerror or str(error)) from error
    if not carried.rstrip().endswith(b"</net>"):
        raise HeaderRejected("truncated", f"{os.path.basename(path)} ends in the middle")
    return found


def _collect(data: bytes, found: _Xml) -> None:
    for match in _CONST.finditer(data):
        found.extent = max(found.extent, int(match[1]) + int(match[2]))
    for match in _VARIABLE.finditer(data):
        layer = _LAYER.search(match[1])
        if layer is not None:
            index = int(layer[1])
            if index < MAX_LAYERS:
                sizes = found.kv.setdefault(index, [0, 0])
                sizes[1 if layer[2] == b"value" else 0] = _width(match[2])
    for match in _INPUT.finditer(data):
        found.inputs[match[2].decode("utf-8", "replace")] = match[1].decode("utf-8", "replace")
    mode = _MODE.search(data)
    if mode is not None:
        found.mode = mode[1].decode()


def _width(shape: bytes) -> int:
    """Elements a token: the product of the fixed extents of `?,heads,?,dim`."""
    width = 1
    for extent in shape.split(b","):
        if extent.strip().isdigit():
            width *= int(extent)
    return width if width < 1 << 32 else 0


def _listing(folder: str) -> set[str]:
    try:
        return set(os.listdir(long_path(folder)))
    except OSError as error:
        raise HeaderRejected("unreadable", error.strerror or str(error)) from error


def _require(names: set[str], parts: Sequence[str]) -> None:
    for name in (f"{part}.{end}" for part in parts for end in ("xml", "bin")):
        if name not in names:
            raise HeaderRejected("truncated", f"{name} is missing")


def _whole(folder: str, part: str, xml: _Xml) -> int:
    """Bytes of the graph's weights, which are all there."""
    size = _size(os.path.join(folder, f"{part}.bin"))
    if xml.extent > size:
        raise HeaderRejected("truncated", f"{part}.bin has {size} bytes and should have {xml.extent}")
    return size


def _size(path: str) -> int:
    try:
        return os.stat(long_path(path)).st_size
    except OSError as error:
        raise HeaderRejected("unreadable", f"{os.path.basename(path)}: {error.strerror or error}") from error


def _read(path: str, most: int, *, from_end: bool = False) -> bytes:
    try:
        with open(long_path(path), "rb") as file:
            if from_end:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most)
    except OSError as error:
        raise HeaderRejected("unreadable", f"{os.path.basename(path)}: {error.strerror or error}") from error


def _json(folder: str, name: str, names: set[str]) -> dict[str, Any]:
    """A config as a dict; {} when it is missing. Raises HeaderRejected when it cannot be read."""
    if name not in names:
        return {}
    try:
        content = msgspec.json.decode(_read(os.path.join(folder, name), MAX_JSON))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HeaderRejected("malformed", f"{name} is not valid JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48
    return value if usable else 0


def _id(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32 else None
