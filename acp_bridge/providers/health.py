"""What a doctor says of one endpoint: whether it answers, what it lists, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acp_bridge.providers.keys import key_source
from shared.diagnosis.finding import Verdict
from shared.errors import LookupFailed, ModeldError, UnsupportedFeature
from shared.text.words import counted, few

if TYPE_CHECKING:
    from acp_bridge.models.picker import RemoteModel
    from acp_bridge.providers.client import ProviderClient

#: A list of more models than this is hard to use in a picker.
MANY = 200


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`fix` is "" where nothing has to be done. A problem keeps it from being used, a note is worth knowing."""

    what: str
    text: str
    fix: str = ""
    verdict: Verdict = "ok"


def broken(what: str, text: str) -> Health:
    """Of an entry that cannot be used."""
    return Health(what=what, text=text, fix="correct it in the config file", verdict="problem")


async def examined(client: ProviderClient) -> Health:
    """Asks the endpoint now."""
    provider = client.provider
    what, address = f"provider {provider.name}", provider.base_url
    try:
        listed = await client.listed()
    except (LookupFailed, UnsupportedFeature) as error:
        if not provider.models:
            return Health(what=what, text=error.message, verdict="problem", fix="check base_url; it mostly ends in /v1")
        text = f"{address} lists no models; those that the config file names are not checked"
        return Health(what=what, text=text, verdict="note")
    except ModeldError as error:
        reason = str(error.data.get("reason") or error.message)
        return Health(what=what, text=f"{address}: {reason}", fix=str(error.data.get("hint") or ""), verdict="problem")
    return _listing(client, listed)


def _listing(client: ProviderClient, listed: list[RemoteModel]) -> Health:
    provider = client.provider
    what, address = f"provider {provider.name}", provider.base_url
    source = key_source(provider)
    if source and not client.endpoint.has_key:
        fix = "set it where the editor is started"
        return Health(what=what, text=f"{address} answers, but {source} is not set", fix=fix, verdict="note")
    offered = {model.served for model in listed}
    wanted = [provider.alias.get(name, name) for name in provider.models]
    lost = [name for name in [*wanted, *provider.alias.values()] if name not in offered]
    if lost:
        text = f"{address} does not list {', '.join(few(sorted(set(lost)), 'the rest'))}"
        return Health(what=what, text=text, fix="correct the name in the config file", verdict="note")
    if not listed:
        fix = "load one there" if not (provider.include or provider.exclude) else "check include and exclude"
        return Health(what=what, text=f"{address} answers and offers no model", fix=fix, verdict="note")
    if client.troubles:
        fix = "a text with {prefix} and {suffix} for `inline_completion` does without `suffix`"
        return Health(what=what, text=f"{address} answers; {client.troubles[0]}", fix=fix, verdict="note")
    key = ", with a key" if client.endpoint.has_key else ""
    text = f"{address} answers{key}, and offers {counted(len(listed), 'model')}: {_named(listed)}"
    if len(listed) > MANY:
        return Health(what=what, text=text, verdict="note", fix="`include` in the config file shortens the list")
    return Health(what=what, text=text)


def _named(models: list[RemoteModel]) -> str:
    """The first ones with their windows."""
    told = [f"{model.id} (window {f'{model.context:,}' if model.context else 'not known'})" for model in models]
    return ", ".join(few(told, "`acp-bridge models`"))
