"""Writes real, tiny GGUF models that llama.cpp loads in milliseconds.

A byte-level vocabulary (every text has tokens, one or a few bytes each), random but seeded weights
and a chat template. What they answer is noise; it is deterministic noise, which is what tests of
reuse, cancel, parking and counting need. Two shapes: `llama` (plain attention) and `gemma3`
(a sliding window on most layers, so that memory cannot be cut at will); `qwen2vl` (positions of several parts).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np

Shape = Literal["llama", "gemma3", "qwen2vl"]

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
)
_MERGES = ("t h", "i n", "a n", "e r", "th e", "Ġ a", "Ġ th", "an d")


def byte_alphabet() -> list[str]:
    """The 256 printable characters that byte-level BPE writes for the bytes 0 to 255, in byte order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def write_tiny_gguf(
    path: Path,
    *,
    shape: Shape = "llama",
    seed: int = 1,
    layers: int = 2,
    width: int = 64,
    context: int = 4096,
    window: int = 32,
    template: str | None = CHATML,
    name: str = "tiny",
    half: bool = False,
    marks: tuple[str, ...] = (),
    user_defined: tuple[str, ...] = (),
    metadata: dict[str, str] | None = None,
    pre: str = "gpt-2",
) -> Path:
    """Write one model and answer its path.

    `width` is the embedding width (a multiple of 32), `context` the trained context in tokens,
    `window` the sliding window of `gemma3`. `template` None writes a model without a chat template. `half`: matrices
    of 16 bits, as OpenVINO's reader wants them. `marks`: further special tokens; `user_defined`: tokens
    that are read as one always. `pre`: how text is split; OpenVINO's reader knows `default`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, shape)
    writer.add_name(name)
    _hyperparameters(writer, layers=layers, width=width, context=context)
    if shape == "gemma3":
        writer.add_sliding_window(window)
        writer.add_key_length(width // 4)
        writer.add_value_length(width // 4)
    if shape == "qwen2vl":
        writer.add_rope_dimension_sections([2, 3, 3, 0])
    tokens = add_vocabulary(writer, marks, user_defined, pre)
    if template is not None:
        writer.add_chat_template(template)
    for key, value in (metadata or {}).items():
        writer.add_string(key, value)
    unlikely = len(SPECIAL) + len(marks) + len(user_defined)
    for tensor, data in _weights(shape, seed, layers, width, len(tokens), unlikely).items():
        writer.add_tensor(tensor, data.astype(np.float16) if half and data.ndim == 2 else data)
    return written(writer, path)


def write_tiny_adapter(path: Path, *, architecture: str = "llama", width: int = 64, seed: int = 5) -> Path:
    """A LoRA of rank 4 over one matrix of the tiny model: enough to change every answer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 16.0)
    writer.add_tensor("blk.0.ffn_down.weight.lora_a", random.standard_normal((4, 2 * width)).astype(np.float32))
    writer.add_tensor("blk.0.ffn_down.weight.lora_b", random.standard_normal((width, 4)).astype(np.float32))
    return written(writer, path)


def _hyperparameters(writer: Any, *, layers: int, width: int, context: int) -> None:
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def add_vocabulary(writer: Any, marks: tuple[str, ...], user_defined: tuple[str, ...], pre: str) -> list[str]:
    """A byte-level vocabulary with the special tokens; its tokens in order."""
    merged = ["".join(pair.split(" ")) for pair in _MERGES]
    special = (*SPECIAL, *marks)
    plain = 256 + len(merged)
    tokens = [*byte_alphabet(), *merged, *special, *user_defined]
    types = [gguf.TokenType.NORMAL] * plain + [gguf.TokenType.CONTROL] * len(special)
    types += [gguf.TokenType.USER_DEFINED] * len(user_defined)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(list(_MERGES))
    ids = {text: plain + index for index, text in enumerate(SPECIAL)}
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_add_bos_token(False)
    writer.add_uint32("tokenizer.ggml.fim_pre_token_id", ids["<|fim_prefix|>"])
    writer.add_uint32("tokenizer.ggml.fim_suf_token_id", ids["<|fim_suffix|>"])
    writer.add_uint32("tokenizer.ggml.fim_mid_token_id", ids["<|fim_middle|>"])
    return tokens


def written(writer: gguf.GGUFWriter, path: Path) -> Path:
    """Everything given to the writer is in the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _weights(shape: Shape, seed: int, layers: int, width: int, vocabulary: int, special: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    head, kv = width // 4, width // 2

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Any:
        return (random.standard_normal((rows, columns)) * scale / np.sqrt(columns)).astype(np.float32)

    def ones(count: int) -> Any:
        return np.ones(count, dtype=np.float32)

    tensors: dict[str, Any] = {"token_embd.weight": matrix(vocabulary, width, 8.0), "output_norm.weight": ones(width)}
    output = matrix(vocabulary, width, 3.0)
    output[-special:] = 0.0  # a special token is never the likeliest, so greedy answers do not end
    output[128:256] = 0.0  # nor is half a UTF-8 character: the noise stays readable text
    output[:32] = 0.0
    tensors["output.weight"] = output
    for layer in range(layers):
        block = f"blk.{layer}"
        tensors[f"{block}.attn_norm.weight"] = ones(width)
        tensors[f"{block}.ffn_norm.weight"] = ones(width)
        tensors[f"{block}.attn_q.weight"] = matrix(width, width, 2.0)
        tensors[f"{block}.attn_k.weight"] = matrix(kv, width, 2.0)
        tensors[f"{block}.attn_v.weight"] = matrix(kv, width, 2.0)
        tensors[f"{block}.attn_output.weight"] = matrix(width, width, 2.0)
        tensors[f"{block}.ffn_gate.weight"] = matrix(2 * width, width)
        tensors[f"{block}.ffn_up.weight"] = matrix(2 * width, width)
        tensors[f"{block}.ffn_down.weight"] = matrix(width, 2 * width)
        if shape == "qwen2vl":
            for part, size in (("attn_q", width), ("attn_k", kv), ("attn_v", kv)):
                tensors[f"{block}.{part}.bias"] = np.zeros(size, dtype=np.float32)
        if shape == "gemma3":
            for norm, size in (("attn_q_norm", head), ("attn_k_norm", head)):
                tensors[f"{block}.{norm}.weight"] = ones(size)
            for norm in ("post_attention_norm", "post_ffw_norm"):
                tensors[f"{block}.{norm}.weight"] = ones(width)
    return tensors
