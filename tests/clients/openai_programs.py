"""Real programs of the OpenAI protocol, each as its user runs it, in an environment of its own; and what editors send.

Each gives the words that it got. What Zed and Continue send was read from their public sources: the fields, not the
words.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from http_world import HttpServer

SECONDS = 240.0


class Place(NamedTuple):
    """Where a program runs: its environment's folder, a folder for its files, the server and the model."""

    environment: Path
    work: Path
    server: HttpServer
    model: str

    @property
    def url(self) -> str:
        return str(self.server.where["url"])

    def run(self, program: str, *arguments: str, **environ: str) -> str:
        """A program of the environment; what it printed. Raises RuntimeError."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        done = subprocess.run(
            [str(self.environment / "bin" / program), *arguments],
            env={**kept, "HOME": str(self.work), **environ},
            cwd=self.work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-600:]}{done.stdout[-300:]}")
        return done.stdout

    def python(self, program: str) -> str:
        """A Python program of the environment, which finds URL, KEY and MODEL in its own."""
        return self.run("python", "-c", program, URL=self.url, KEY=self.server.key, MODEL=self.model)


def llm(place: Place) -> str:
    """Its extra models of the OpenAI kind; the key by its name, as `llm keys set` keeps it."""
    folder = place.work / "llm"
    folder.mkdir()
    extra = f"- model_id: local\n  model_name: {place.model}\n  api_base: {place.url}\n  api_key_name: modeld\n"
    (folder / "extra-openai-models.yaml").write_text(extra)
    (folder / "keys.json").write_text(json.dumps({"modeld": place.server.key}))
    return place.run("llm", "-m", "local", "What is the capital of France?", LLM_USER_PATH=str(folder))


def aider(place: Place) -> str:
    """One message about one file, without git."""
    (place.work / "hello.py").write_text("print('hello')\n")
    options = ["--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update", "--analytics-disable"]
    options += ["--no-stream", "--no-pretty", "--map-tokens", "0", "--edit-format", "ask"]
    environ = {"OPENAI_API_BASE": place.url, "OPENAI_API_KEY": place.server.key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    asked = ["--model", f"openai/{place.model}", "--message", "What does this file print?", "hello.py"]
    said = place.run("aider", *options, *asked, **environ)
    if "Tokens:" not in said:
        raise RuntimeError(f"no answer in: {said[-600:]}")
    return said


def litellm(place: Place) -> str:
    """Whole, and streamed with its usage."""
    return place.python(
        "import os, litellm\n"
        "at = dict(model='openai/' + os.environ['MODEL'], api_base=os.environ['URL'], api_key=os.environ['KEY'])\n"
        "say = [{'role': 'user', 'content': 'What is the capital of France?'}]\n"
        "print(litellm.completion(messages=say, max_tokens=20, **at).choices[0].message.content)\n"
        "pieces = litellm.completion(messages=say, max_tokens=20, stream=True, "
        "stream_options={'include_usage': True}, **at)\n"
        "print(''.join(piece.choices[0].delta.content or '' for piece in pieces if piece.choices))\n"
    )


def langchain(place: Place) -> str:
    """A chat model: asked, streamed, with a tool it has to call, and with a structure it has to keep."""
    return place.python(
        "import os\n"
        "from langchain_openai import ChatOpenAI\n"
        "from pydantic import BaseModel\n"
        "class City(BaseModel):\n"
        "    '''A city.'''\n"
        "    name: str\n"
        "model = ChatOpenAI(model=os.environ['MODEL'], base_url=os.environ['URL'], api_key=os.environ['KEY'],"
        " max_tokens=60, temperature=0)\n"
        "print(model.invoke('What is the capital of France?').content)\n"
        "print(''.join(piece.content for piece in model.stream('What is the capital of France?')))\n"
        "print(model.bind_tools([City], tool_choice='any').invoke('Name the city Paris.').tool_calls)\n"
        "print(model.with_structured_output(City, method='json_schema').invoke('The capital of France is Paris.'))\n"
    )


# --- what two editors send ---------------------------------------------------------------------------

_READ = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_TOOL = {"type": "function", "function": {"name": "read_file", "description": "Reads a file", "parameters": _READ}}


def _sent(place: Place, body: dict[str, Any], agent: str, path: str = "/v1/chat/completions") -> str:
    answer = place.server.ask("POST", path, {"model": place.model, **body}, agent=agent)
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.body.decode()[:300]}")
    if not body.get("stream"):
        return str(answer.json["choices"][0]["message"]["content"])
    choices = [choice for event in answer.events for choice in event["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


def zed(place: Place) -> str:
    """A thread with tools, the same after a call, the inline assistant and a commit message."""
    agent = "Zed/1.0"
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}
    system = {"role": "system", "content": "You are in an editor."}
    user = {"role": "user", "content": [{"type": "text", "text": "What is in"}, {"type": "text", "text": " a.py?"}]}
    after = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "print(1)", "tool_call_id": "call_1"},
    ]
    thread: dict[str, Any] = {
        "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 40, "temperature": 0.0,
        "tool_choice": "auto", "parallel_tool_calls": True, "tools": [_TOOL], "prompt_cache_key": "thread-1",
    }  # fmt: skip
    return "\n".join(
        [
            _sent(place, {**thread, "messages": [system, user]}, agent),
            _sent(place, {**thread, "messages": [system, user, *after]}, agent),
            _sent(place, {"messages": [user], "stream": True, "stop": ["```"], "temperature": 1.0}, agent),
            _sent(place, {"messages": [system, user], "stream": True, "max_completion_tokens": 20}, agent),
        ]
    )


def continue_(place: Place) -> str:
    """A chat, an edit, and its completion by the older endpoint."""
    agent = "Continue/1.3"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the capital of France?"}]
    options: dict[str, Any] = {
        "max_tokens": 30, "temperature": 0.2, "top_p": None, "frequency_penalty": None, "presence_penalty": None,
        "stop": None, "stream": True, "stream_options": {"include_usage": True}, "tools": None,
    }  # fmt: skip
    complete = {**options, "prompt": "def add(a, b):\n    return", "stop": ["\n\n"], "max_tokens": 16}
    del complete["tools"]
    return "\n".join(
        [
            _sent(place, {**options, "messages": chat}, agent),
            _sent(place, {**options, "messages": chat, "tools": [_TOOL], "tool_choice": "auto"}, agent),
            _sent(place, complete, agent, "/v1/completions"),
        ]
    )


#: Name -> what pip is asked for ("" where nothing is installed), and what runs.
PROGRAMS: dict[str, tuple[str, Callable[[Place], str]]] = {
    "llm": ("llm", llm),
    "litellm": ("litellm", litellm),
    "langchain": ("langchain-openai", langchain),
    "aider": ("aider-chat", aider),
    "zed's requests": ("", zed),
    "continue's requests": ("", continue_),
}


def installed(name: str, package: str, folder: Path) -> Path:
    """The environment of a program, made where it is missing."""
    target = folder / (package or name)
    if package and not (target / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
        subprocess.run([str(target / "bin" / "pip"), "install", "--quiet", package], check=True)
        (target / "ready").touch()
    return target
