"""llama-server's own reading of its chat templates, recorded once: `python -m bench.oracle [--only NAME] [OUT]`.

For each template: the prompts that it renders, and what it reads (words, thoughts, calls) from given outputs. The
outputs come from a tiny model whose weights spell one text token by token, so that the server really generates them,
under its own grammar. Prompts are kept as digests: the templates are their makers' work.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np

from bench.peers import build
from bench.server import LlamaServer
from bench.template_table import CALL, TOOL, USER, written_by
from modeld.template.render import Template
from shared.errors import TemplateFailed
from tiny_gguf import byte_alphabet
from vendored import templates

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "unit" / "template" / "oracle.json"
SYSTEM = {"role": "system", "content": "be brief"}
RESULT = {"role": "tool", "content": "it rains", "tool_call_id": CALL["id"], "name": "special_function"}
ANSWER = {"role": "assistant", "content": "so it is"}
#: (messages, tools) by the name of the case
PROMPTS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "plain": ([SYSTEM, USER], []),
    "history": ([SYSTEM, USER, ANSWER, USER], []),
    "tools": ([SYSTEM, USER], [TOOL]),
    "called": ([SYSTEM, USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT], [TOOL]),
}
#: The message that each output says, by the name of the case.
OUTPUTS: dict[str, dict[str, Any]] = {
    "words": {"role": "assistant", "content": "the plain answer"},
    "thoughts": {"role": "assistant", "content": "so it is", "reasoning_content": "deep thoughts"},
    "call": {"role": "assistant", "content": "", "tool_calls": [CALL]},
}
_WIDTH = 320
_BIAS = 5.0


class Spelled(NamedTuple):
    """A model file, and the token that begins each text."""

    path: Path
    begins: dict[str, int]


def dateless(text: str) -> str:
    """The same whatever the day."""
    today = dt.datetime.now(dt.UTC).date()
    for day in (today, today - dt.timedelta(1)):
        for form in ("%d %b %Y", "%B %d, %Y", "%Y-%m-%d", "%d %B %Y", "%A, %B %d, %Y", "%Y %m %d", "%b %d %Y"):
            text = text.replace(day.strftime(form), "<date>")
    return re.sub(r"\d\d:\d\d(:\d\d)?", "<time>", text)


def digest(prompt: str) -> str:
    """Short enough for a table of hundreds."""
    return hashlib.sha256(dateless(prompt).encode()).hexdigest()[:24]


def spelling_model(path: Path, texts: dict[str, str]) -> Spelled:
    """A model that, after any prompt, writes one of the texts; a bias on its first token chooses which.

    Attention and feed-forward add nothing, the embedding of a token is a unit vector, and the output row of a
    token points at those after which it comes.
    """
    special = ["<s>", "</s>"]
    alphabet = byte_alphabet()
    spelled = ["".join(alphabet[byte] for byte in text.encode()) for text in texts.values()]
    tokens = [*alphabet, *special, *spelled]
    first = len(alphabet) + len(special)
    end = len(alphabet) + 1
    assert len(tokens) <= _WIDTH
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("spelling")
    writer.add_context_length(65536)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    kinds[len(alphabet) : first] = [gguf.TokenType.CONTROL] * len(special)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{alphabet[ord('z')]} {alphabet[ord('q')]}"])
    writer.add_bos_token_id(len(alphabet))
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    embedding = np.zeros((len(tokens), _WIDTH), dtype=np.float32)
    embedding[np.arange(len(tokens)), np.arange(len(tokens))] = 1.0
    output = np.zeros_like(embedding)
    output[first:, :first] = 1.0
    output[end, first:] = 1.0
    for name, shape in _TENSORS.items():
        writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(_WIDTH, dtype=np.float32))
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", output)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Spelled(path, {name: first + at for at, name in enumerate(texts)})


_TENSORS = {
    "blk.0.attn_q.weight": (_WIDTH, _WIDTH),
    "blk.0.attn_k.weight": (_WIDTH // 4, _WIDTH),
    "blk.0.attn_v.weight": (_WIDTH // 4, _WIDTH),
    "blk.0.attn_output.weight": (_WIDTH, _WIDTH),
    "blk.0.ffn_gate.weight": (32, _WIDTH),
    "blk.0.ffn_up.weight": (32, _WIDTH),
    "blk.0.ffn_down.weight": (_WIDTH, 32),
}


def outputs_of(path: Path) -> dict[str, str]:
    """What a template writes for each message, as its model would."""
    template = Template(path.read_text(encoding="utf-8"), "<s>", "</s>")
    form = template.output_format(template.render([USER], [TOOL], thinking_of(template)))
    texts: dict[str, str] = {}
    for name, message in OUTPUTS.items():
        try:
            text = written_by(template, message)
        except TemplateFailed:
            continue
        if form.opened:  # the prompt began a thought, so the model ends one
            text = _with_thought(text, form.think_open[0], form.think_close[0])
        if text and text not in texts.values() and (name != "thoughts" or "deep thoughts" in text):
            texts[name] = text
    return texts


def _with_thought(text: str, opener: str, closer: str) -> str:
    text = text.removeprefix(opener).lstrip("\n")
    return text if closer in text else f"hm\n{closer}\n\n{text}"


def thinking_of(template: Template) -> str | None:
    """The server's default: where a template has a switch, it is on."""
    return "on" if template.detected.thinking_switches else None


def wire(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With arguments as text, which is how the server takes them."""
    plain: list[dict[str, Any]] = json.loads(json.dumps(messages))
    for message in plain:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return plain


def record(program: Path, path: Path, folder: Path) -> dict[str, Any]:
    """Everything the server says of one template."""
    texts = outputs_of(path)
    model = spelling_model(folder / "spelling.gguf", texts or {"words": "the plain answer"})
    options = ["-c", "65536", "--no-warmup", "-np", "1", "-t", "1", "--jinja", "--chat-template-file", str(path)]
    found: dict[str, Any] = {"prompts": {}, "read": {}, "outputs": texts}
    with LlamaServer(program, model.path, *options) as server:
        for name, (messages, tools) in PROMPTS.items():
            body = {"messages": wire(messages), **({"tools": tools} if tools else {})}
            status, answer = server.post("/apply-template", body)
            found["prompts"][name] = digest(answer["prompt"]) if status == 200 else "refused"
        for name in texts:
            asked: dict[str, Any] = {
                "messages": [USER],
                "tools": [TOOL],
                "temperature": 0,
                "max_tokens": 64,
                "logit_bias": [[model.begins[name], _BIAS]],
            }
            status, answer = server.post("/v1/chat/completions", asked)
            found["read"][name] = _fields(answer) if status == 200 else "refused"
    return found


def _fields(answer: dict[str, Any]) -> dict[str, Any]:
    message = answer["choices"][0]["message"]
    calls = [[one["function"]["name"], one["function"]["arguments"]] for one in message.get("tool_calls") or ()]
    return {
        "text": message.get("content") or "",
        "reasoning": message.get("reasoning_content") or "",
        "calls": calls,
    }


def main() -> int:
    """Write the golden file, or print one template's record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("out", nargs="?", type=Path, default=GOLDEN)
    arguments = parser.parse_args()
    program = build() / "llama-server"
    golden: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="oracle-") as name:
        for path in sorted(templates().glob("*.jinja")):
            if arguments.only not in (None, path.stem):
                continue
            try:
                golden[path.stem] = record(program, path, Path(name))
            except (RuntimeError, OSError, TemplateFailed) as error:
                golden[path.stem] = {"failed": str(error).strip().splitlines()[-1][:200]}
            print(path.stem, {key: list(value) for key, value in golden[path.stem].items() if value}, flush=True)
    text = json.dumps(golden, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if arguments.only:
        print(text)
    else:
        arguments.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
