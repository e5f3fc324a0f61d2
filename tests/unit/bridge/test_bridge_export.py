"""A conversation as Markdown: everything that was said and done, and nothing that breaks out of its place."""

from __future__ import annotations

import pytest

from acp_bridge.conversations.events import (
    Card,
    Change,
    Compacted,
    ImagePart,
    LinkPart,
    PlanSet,
    Remark,
    ResourcePart,
    Said,
    TextItem,
    TextPart,
    Thought,
    ToolAnswered,
    ToolsCalled,
    TurnEnded,
    UserSaid,
)
from acp_bridge.conversations.export import file_name, markdown
from acp_bridge.conversations.state import Conversation
from shared.text.shown import fenced

pytestmark = pytest.mark.unit

CONVERSATION = Conversation(
    id="0123456789abcdef",
    cwd="/w",
    title="Raise the limit",
    model="alpha",
    created=0.0,
    events=[
        UserSaid(
            message="t1",
            parts=[
                TextPart(text="raise it "),
                LinkPart(uri="file:///w/app.py", name="app.py"),
                ResourcePart(uri="file:///w/b.py", text="```\nx"),
                ImagePart(data="AAAA", mime_type="image/png"),
            ],
        ),
        Thought(message="t1", text="hm"),
        Said(message="t1", text="I look."),
        ToolsCalled(message="t1", calls=[]),
        Card(
            card="k",
            title="Edit app.py",
            kind="edit",
            status="completed",
            items=[Change(path="/w/app.py", old="limit = 1\n", new="limit = 2\n")],
        ),
        ToolAnswered(call="1", name="edit_file", text="done"),
        Card(card="l", title="`make`", status="failed", items=[TextItem(text="1 failed")]),
        PlanSet(entries=[("look", "medium", "completed"), ("edit", "medium", "pending")]),
        Remark(message="r", text="two\nlines"),
        TurnEnded(stop="cancelled"),
        UserSaid(message="t2", parts=[TextPart(text="go on")]),
        Compacted(summary="all of it"),
        Said(message="t2", text="Done."),
        TurnEnded(stop="end_turn"),
    ],
)

EXPECTED = """\
# Raise the limit

- Folder: `/w`
- Model: `alpha`
- Started: 1970-01-01 00:00 UTC
- Id: `0123456789abcdef`

## You

raise it

[app.py](file:///w/app.py)

`file:///w/b.py`

````
```
x
````

*(an image, image/png)*

## Assistant

<details>
<summary>Thought</summary>

```
hm
```

</details>

I look.

**Edit app.py**

```diff
--- /w/app.py
+++ /w/app.py
@@ -1 +1 @@
-limit = 1
+limit = 2
```

**`make`** (failed)

```
1 failed
```

- [x] look
- [ ] edit

> two
> lines

*The answer was cancelled.*

## You

go on

## Assistant

> What was said so far was replaced by this summary:
>
> all of it

Done.
"""


def test_everything_in_order() -> None:
    assert markdown(CONVERSATION) == EXPECTED


def test_a_fence_is_longer_than_what_is_in_it() -> None:
    assert fenced("a ````` b").splitlines()[0] == "``````"


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Raise the limit", "raise-the-limit-01234567.md"),
        ("../../etc/passwd", "etc-passwd-01234567.md"),
        ("日本", "conversation-01234567.md"),
        ("a" * 100, f"{'a' * 40}-01234567.md"),
    ],
)
def test_file_names_are_plain(title: str, name: str) -> None:
    assert file_name(Conversation(id="0123456789abcdef", cwd="/w", title=title)) == name
