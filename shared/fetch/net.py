"""One HTTP request: redirects, proxies, certificates, and what went wrong in words that name the remedy.

The standard library does it (urllib): the base install brings no HTTP client, and a download needs
none of what the bigger ones offer (see docs/design/downloads.md).
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from shared.errors import DownloadFailed
from shared.text.secret import Cleaner, Secret, address_secrets, proxy_secrets, shown_address
from shared.version import __version__

TIMEOUT = 30.0
#: Of an address, what is sent as it stands; a blank or a letter outside ASCII is percent-encoded.
_ADDRESS_SAFE = "%/:=&?~#+!$,;'@()*[]"
#: Characters of another's words that a reason takes.
_REASON_SHOWN = 300
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Variables that name a file of certificates to trust; the first is Python's own, the others those of common tools.
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to fetch. `sha256` and `size` are checked when given; `authorization` goes to this host only."""

    url: str
    sha256: str = ""
    size: int = 0
    authorization: Secret | None = None

    @property
    def clean(self) -> Cleaner:
        """For every text of this transfer that is shown or stored."""
        known = [*address_secrets(self.url), *proxy_secrets(os.environ)]
        return Cleaner(known if self.authorization is None else known + self.authorization.known())

    @property
    def source(self) -> str:
        """The address as it may be shown and stored."""
        return self.clean(self.url)


class Retry(Exception):
    """Worth another attempt after `after` seconds."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class RangeRefused(Exception):
    """416: what we have is no part of what is there now."""


def open_response(wanted: Wanted, headers: Mapping[str, str]) -> Any:
    """The response to one request. Raises DownloadFailed, Retry, RangeRefused."""
    sent = {"User-Agent": f"modeld/{__version__}", "Accept-Encoding": "identity", **headers}
    if wanted.authorization is not None:
        sent["Authorization"] = wanted.authorization.reveal()
    try:
        request = urllib.request.Request(quote(wanted.url, safe=_ADDRESS_SAFE), headers=sent)  # noqa: S310 - http(s)
        return _opener(wanted).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and "Range" in headers:
                raise RangeRefused from error
            if error.code in _TEMPORARY:
                raise Retry(_status_words(error.code), _retry_after(error)) from error
            raise _refused(wanted, _status_words(error.code)) from error
    except (urllib.error.URLError, OSError) as error:
        reason = _certificate_words(error)
        if reason:
            raise _refused(wanted, reason) from error
        raise Retry(words(error, wanted) + _by_proxy(wanted.url)) from error
    except http.client.InvalidURL as error:
        raise _refused(wanted, words(error, wanted)) from error
    except http.client.HTTPException as error:
        raise Retry(words(error, wanted)) from error
    except ValueError as error:  # an address that no request can carry; the text quotes it
        raise _refused(wanted, "its address cannot be used") from error


def hang_up(response: Any) -> None:
    """End a transfer that somebody may still be reading: closing alone would wait for that."""
    line = getattr(getattr(response.fp, "raw", None), "_sock", None)
    if line is not None:
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)


def words(error: BaseException, wanted: Wanted) -> str:
    """An error of the system or of the server, in one line without secrets."""
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended early"
    reason = getattr(error, "reason", None) or error
    return wanted.clean(str(getattr(reason, "strerror", None) or reason or type(error).__name__))[:_REASON_SHOWN]


def _refused(wanted: Wanted, reason: str) -> DownloadFailed:
    return DownloadFailed(source=wanted.source, reason=reason, resumable=False)


# --- proxies and certificates ---------------------------------------------------------------------


def _opener(wanted: Wanted) -> urllib.request.OpenerDirector:
    """Raises DownloadFailed for settings of the environment that cannot be used."""
    handlers: list[urllib.request.BaseHandler] = [_Redirects(wanted), urllib.request.ProxyHandler(_proxies())]
    proxy = _proxy_of(wanted.url)
    if proxy.lower().startswith("socks"):
        reason = f"the proxy {shown_address(proxy)} is a SOCKS proxy, which is not supported; name an HTTP proxy"
        raise _refused(wanted, f"{reason}, or this host in no_proxy")
    variable = next((name for name in _BUNDLES if os.environ.get(name)), "")
    if variable:
        try:
            trusted = ssl.create_default_context(cafile=os.environ[variable])
        except (OSError, ssl.SSLError) as error:
            reason = f"the certificates that {variable} names cannot be read ({error.strerror or error})"
            raise _refused(wanted, reason) from error
        handlers.append(urllib.request.HTTPSHandler(context=trusted))
    return urllib.request.build_opener(*handlers)


def _proxies() -> dict[str, str]:
    """The proxies of the environment or the system by scheme; ALL_PROXY where there is none for a scheme."""
    found = urllib.request.getproxies()
    every = found.get("all", "")
    return {**({"http": every, "https": every} if every else {}), **found}


def _proxy_of(url: str) -> str:
    """The proxy that a request for this address goes through, "" for none."""
    parts = urlsplit(url)
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return ""
    return _proxies().get(parts.scheme, "")


def _by_proxy(url: str) -> str:
    proxy = _proxy_of(url).rpartition("@")[2]  # never who uses it, also where the rest is no address
    return f" (through the proxy {shown_address(proxy)}; the variables *_proxy name it)" if proxy else ""


def _certificate_words(error: BaseException) -> str:
    """What to do about a certificate that was not accepted, "" for another error."""
    reason = getattr(error, "reason", None) or error
    if not isinstance(reason, ssl.SSLCertVerificationError):
        return ""
    variable = next((name for name in _BUNDLES if os.environ.get(name)), "")
    remedy = f"{variable} names the certificates that are trusted" if variable else "SSL_CERT_FILE may name a bundle"
    return f"its certificate is not trusted ({reason.verify_message}); {remedy}, with your company's among them"


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http nor to a password, and takes secrets to no other host."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        usable = new.scheme in ("http", "https") and "@" not in new.netloc and new.port != 0
        if not usable or (old.scheme == "https" and new.scheme != "https"):
            fp.close()
            raise self._refused(newurl)
        follow = super().redirect_request(req, fp, code, msg, headers, newurl)
        if follow is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            follow.remove_header("Authorization")
        return follow

    def http_error_302(self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """One redirect, of any kind. Raises DownloadFailed for a target that is no address."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise self._refused(headers.get("Location") or "nowhere") from None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def _refused(self, target: str) -> DownloadFailed:
        shown = self._wanted.clean(target.partition("?")[0])[:_REASON_SHOWN]
        return _refused(self._wanted, f"refused a redirect to {shown}")


# --- answers that are no file ---------------------------------------------------------------------


def _status_words(code: int) -> str:
    known = {
        401: "it needs a login (401); for Hugging Face set HF_TOKEN, or `hf auth login`",
        403: "access was refused (403); accept the model's licence on its page, and set HF_TOKEN or `hf auth login`",
        404: "there is no such file (404)",
        407: "the proxy needs a login (407); put it into the variable that names the proxy",
        410: "the file is gone (410)",
        429: "too many requests (429); try again later",
        503: "the server is overloaded (503); try again later",
    }
    if 300 <= code < 400:
        return f"its redirect could not be followed ({code})"
    return known.get(code, f"the server answered {code} {http.client.responses.get(code, '')}".rstrip())


def _retry_after(error: urllib.error.HTTPError) -> float:
    value = error.headers.get("Retry-After") or ""
    return float(value) if value.isdigit() else 0.0
