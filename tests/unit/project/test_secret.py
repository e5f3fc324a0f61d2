"""Secrets: what is taken, what is hidden in which encodings, and what stays as it is."""

from __future__ import annotations

import base64
import copy
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.cli.app import parser as bridge_parser
from modeld.cli.app import parser as modeld_parser
from secret_search import echoes, found
from shared.errors import SettingInvalid
from shared.settings import load_settings
from shared.text.secret import (
    HIDDEN,
    LONGEST,
    PLACEHOLDERS,
    Cleaner,
    Secret,
    SecretUnusable,
    StreamCleaner,
    address_secrets,
    argument_secrets,
    bearer,
    named_secrets,
    proxy_secrets,
    read_secret,
    shown_address,
    split_address,
)
from shared.text.shown import escaped, in_markdown, one_line, title

pytestmark = pytest.mark.unit

#: Everything that a header can carry and no text holds by chance.
ORDINARY = set("<>hiden|&;:/@?=BearerBasic")
SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60).filter(
    lambda text: len(set(text)) > 6 and text.lower() not in PLACEHOLDERS and not set(text) <= ORDINARY
)


@given(SECRETS)
def test_every_encoding_is_hidden(secret: str) -> None:
    shown = Cleaner([secret])(f"before {echoes(secret)} after")
    assert found(secret, {"text": shown.encode()}) == []
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert Cleaner([secret])(shown) == shown


@pytest.mark.parametrize(
    "secret", ["pa\x1bss\nword1", "pä\x9bss wörd\u200b9", "br[ack]et<x>12", "back`tick`99", "\u202esecret-77\U000e0041"]
)
def test_a_secret_is_hidden_also_where_it_was_escaped_before_it_was_cleaned(secret: str) -> None:
    """A variable of a server may hold any text, and messages of errors are single lines from their origin on."""
    for show in (escaped, one_line, in_markdown, title):
        assert Cleaner([secret])(show(f"before {secret} after")) == f"before {HIDDEN} after", show


@given(SECRETS, st.integers(1, 9))
def test_a_secret_cut_between_two_pieces_is_hidden_too(secret: str, size: int) -> None:
    cleaner = StreamCleaner(Cleaner([secret]))
    text = f"before {echoes(secret)} after {secret[:5]}"
    shown = "".join(cleaner.feed(text[at : at + size]) for at in range(0, len(text), size)) + cleaner.end()
    assert found(secret, {"text": shown.encode()}) == []
    assert shown.endswith(f" after {secret[:5]}"), "what only began like one is reported at the end"


@given(st.text(max_size=80), st.integers(1, 5))
def test_a_text_without_it_comes_out_of_the_pieces_whole(text: str, size: int) -> None:
    cleaner = StreamCleaner(Cleaner(["sk-0123456789-abc"]))
    assert "".join(cleaner.feed(text[at : at + size]) for at in range(0, len(text), size)) + cleaner.end() == text


@pytest.mark.parametrize("around", ["{}", " {}\n", "\t{}\r\n", "\ufeff{}", "{}\u200b", "\u00a0{}\x0b"])
def test_what_stands_around_a_secret_is_not_sent(around: str) -> None:
    read = read_secret(around.format("sk-1"), "a place")
    assert read is not None
    assert read.reveal() == "sk-1"


@pytest.mark.parametrize("text", ["", " ", "\n", "\ufeff\n"])
def test_nothing_is_no_secret(text: str) -> None:
    assert read_secret(text, "a place") is None


@pytest.mark.parametrize(
    "text", ["sk\n1", "sk\t1", "sk 1", "sk\x001", "sk\x7f1", "s\u00e91", "sk\udcff1", "x" * (LONGEST + 1)]
)
def test_what_no_header_carries_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(SecretUnusable) as refused:
        read_secret(text, "the variable X")
    assert str(refused.value).startswith("the variable X holds ")
    assert text not in str(refused.value)


def test_a_header_of_several_words_may_have_blanks() -> None:
    read = read_secret("Bearer a b\n", "a header", spaces=True)
    assert read is not None
    assert read.reveal() == "Bearer a b"


def test_a_secret_is_not_printed_nor_copied() -> None:
    secret = Secret("sk-1234", "a place")
    assert "sk-1234" not in f"{secret} {secret!r} {[secret]}"
    for copied in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(secret)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://u:p@h/x?a=1", f"https://{HIDDEN}@h/x?a=1"),
        ("https://token@h/x", f"https://{HIDDEN}@h/x"),
        ("https://u:p@x@h/x", f"https://{HIDDEN}@h/x"),
        ("https:/u:p@h/x", f"https:/{HIDDEN}@h/x"),
        ("https://h/x?X-Amz-Signature=abc&b=2", f"https://h/x?X-Amz-Signature={HIDDEN}&b=2"),
        ("https://h/x?b=2&token=a%2Fb#f", f"https://h/x?b=2&token={HIDDEN}#f"),
        ("https://h/x?apiKey=a1&k_key=b1", f"https://h/x?apiKey={HIDDEN}&k_key={HIDDEN}"),
        ("https://h/x#token=a&page=2", f"https://h/x#token={HIDDEN}&page=2"),
        ("https://h/x?sig=a;key=b", f"https://h/x?sig={HIDDEN};key={HIDDEN}"),
        ("https://h/x?t=0123456789abcdefghijklmn", f"https://h/x?t={HIDDEN}"),
        ("https://h/x?monkey=1&design=2&page=3", "https://h/x?monkey=1&design=2&page=3"),
        ("https://me:p#w@h/x?a=1", f"https://{HIDDEN}@h/x?a=1"),
        ("https://me:p/w?x@h/x", f"https://{HIDDEN}@h/x"),
        ("http://h:8080/@scope/x and http://h:80", "http://h:8080/@scope/x and http://h:80"),
        ("see https://h/a@b and me@example.org", "see https://h/a@b and me@example.org"),
        ("Bearer abcdef0123 was refused", f"Bearer {HIDDEN} was refused"),
        ("the bearer token is wrong; basic authentication", "the bearer token is wrong; basic authentication"),
        ("hf:o/r@main:q4", "hf:o/r@main:q4"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
    ],
)
def test_what_is_shown_of_an_address(address: str, shown: str) -> None:
    assert shown_address(address) == shown


def test_a_password_in_an_address_becomes_a_header() -> None:
    bare, header = split_address("http://me:p%40ss@h:8/x?y=1", "the address")
    assert bare == "http://h:8/x?y=1"
    assert header is not None
    assert header.reveal() == "Basic bWU6cEBzcw=="
    assert {"p@ss", "p%40ss"} <= set(header.known())
    assert split_address("http://h/x@y", "the address") == ("http://h/x@y", None)
    for broken in ("http://u:p@[h/", "http://u:p@h:port/"):
        with pytest.raises(SecretUnusable) as refused:
            split_address(broken, "the address")
        assert "u:p" not in str(refused.value)


def test_which_values_of_an_environment_are_secrets() -> None:
    known = named_secrets(
        {
            "API_TOKEN": "tok-1 ", "AUTH": "Bearer abcd", "URL": "postgres://u:pw-1@h/d?sslkey=sss1", "HOME": "/home/x",
            "LANG": "de_DE.UTF-8", "TURN_TOKENS": "8192", "ID": "ghp_0123456789abcdefghij", "PASSWORD": "12345678",
            "PWD": "/work/abcdef", "SSH_AUTH_SOCK": "/run/agent.1", "MAX_TOKENS": "100000000", "DB_PWD": "pass-word",
        }
    )  # fmt: skip
    assert {"tok-1", "abcd", "Bearer abcd", "pw-1", "sss1", "ghp_0123456789abcdefghij", "12345678", "pass-word"} <= set(
        known
    )
    assert not {"/home/x", "de_DE.UTF-8", "8192", "/work/abcdef", "/run/agent.1", "100000000"} & set(known)


def test_words_that_manuals_give_as_keys_stay_words() -> None:
    clean = Cleaner(["EMPTY", "ollama", "lm-studio", "abc", "k3y!"])
    assert clean("EMPTY ollama lm-studio abcd abc") == "EMPTY ollama lm-studio abcd abc"
    assert clean("with k3y! it is refused, mask3y!s not") == f"with {HIDDEN} it is refused, mask3y!s not"
    assert clean.known("k3y!") == "k3y!", "an answer keeps a short word"
    assert address_secrets("http://[broken") == []


def test_a_very_short_key_is_hidden_behind_the_word_that_says_what_it_is() -> None:
    assert Cleaner(["ab"])("Authorization: Bearer ab, about ab") == f"Authorization: Bearer {HIDDEN}, about ab"


@pytest.mark.parametrize("cut", range(60, 90))
def test_a_secret_that_a_bound_cuts_is_hidden_too(cut: int) -> None:
    cleaner = Cleaner(["sk-0123456789-abcdef"])
    shown = cleaner.shortened(f"{'x' * 60} sk-0123456789-abcdef is wrong", 300, cut)
    assert "sk" not in shown
    assert shown.startswith("x" * 60)


@pytest.mark.parametrize(
    "text",
    ["a." * 40_000, "\\" * 80_000, "a://b:" * 13_000, "&a=" * 26_000, "token " * 13_000, "a:/" * 26_000,
     'k\\"' * 26_000,
     "Bearer" + " " * 80_000, "sk-\\" * 20_000, "https://" + "a" * 80_000, "bearer " + "a" * 80_000],
)  # fmt: skip
def test_a_text_made_to_take_for_ever_does_not(text: str) -> None:
    cleaner = Cleaner(['sk-\\\\\\"/k', "sk-plain-0123456789"])
    assert cleaner(text)
    assert cleaner.held(text) <= len(text)


def test_a_line_of_a_key_file_is_known_too() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nab\n-----END KEY-----\n"
    assert Cleaner([key])("it holds MIIEvQIBADANBgkqhkiG9w0BAQ and ab") == f"it holds {HIDDEN} and ab"


KEY = "sk-0123456789-abcdef"


def test_every_text_of_a_value_is_cleaned_names_of_fields_too() -> None:
    value = {f"a {KEY}": [1, None, True, {"b": (f"{KEY}!", 2.5)}, f"{KEY}"], "c": {"d": KEY}}
    assert Cleaner([KEY]).value(value) == {
        f"a {HIDDEN}": [1, None, True, {"b": (f"{KEY}!", 2.5)}, HIDDEN],
        "c": {"d": HIDDEN},
    }, "tuples do not come out of JSON"


def test_a_token_goes_into_a_header_and_both_are_known() -> None:
    header = bearer(Secret(KEY, "a place", ["part"]))
    assert header.reveal() == f"Bearer {KEY}"
    assert header.known() == [f"Bearer {KEY}", KEY, "part"]
    assert repr(header) == str(header) == f"Secret({HIDDEN} from a place)"


def test_the_credentials_of_proxies_are_known_with_and_without_a_scheme() -> None:
    environ = {
        "HTTPS_PROXY": "http://me:pw-one@proxy:3128",
        "all_proxy": "you:pw-two@proxy:1080",
        "NO_PROXY": "who:pw-three@host",
        "OTHER": "http://me:pw-four@host",
    }
    known = set(proxy_secrets(environ))
    assert {"pw-one", "me:pw-one", "pw-two", "you:pw-two"} <= known
    assert not any("three" in one or "four" in one for one in known)


@pytest.mark.parametrize(
    ("text", "most", "read", "shown"),
    [
        ("short", 10, 10, "short"),
        ("shortened", 5, 20, "short"),
        ("shortened", 20, 5, "short"),
        (f"key {KEY} end", 40, 40, f"key {HIDDEN} end"),
        (f"key {KEY}", 40, 10, "key "),
        ("key sk-0123", 40, 40, "key sk-0123"),
        ("key sk-0123", 40, 11, "key "),
    ],
)
def test_a_shortened_text_is_as_long_as_it_may_be(text: str, most: int, read: int, shown: str) -> None:
    assert Cleaner([KEY]).shortened(text, most, read) == shown


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("", 0),
        ("about", 0),
        ("about s", 1),
        ("about sk-01", 5),
        (KEY[:-1], len(KEY) - 1),
        (f"{KEY}", 0),
        ("sk-sk-0", 4),
    ],
)
def test_only_what_may_begin_a_secret_is_held_back(text: str, held: int) -> None:
    assert Cleaner([KEY]).held(text) == held
    assert Cleaner().held(text) == 0


def test_the_pieces_are_shown_as_soon_as_they_are_none() -> None:
    cleaner = StreamCleaner(Cleaner([KEY]))
    assert [cleaner.feed(piece) for piece in ("about sk-", "01", "not", "sk-0123456789-", "abcdef!")] == [
        "about ",
        "",
        "sk-01not",
        "",
        f"{HIDDEN}!",
    ]
    assert cleaner.feed("sk-") == ""
    assert (cleaner.end(), cleaner.end()) == ("sk-", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * (LONGEST + 1), f"the variable X holds {LONGEST + 1} characters, where a key has {LONGEST} at most"),
        ("s\u00e91", "the variable X holds a character that is not ASCII, which no key has; copy the key again"),
        ("sk 1", "the variable X holds a blank or a line end inside, which no key has; copy the key again"),
        ("sk\n1", "the variable X holds a blank or a line end inside, which no key has; copy the key again"),
    ],
)
def test_what_is_wrong_with_a_key_is_said(text: str, said: str) -> None:
    with pytest.raises(SecretUnusable) as refused:
        read_secret(text, "the variable X")
    assert str(refused.value) == said
    assert read_secret("x" * LONGEST, "the variable X") is not None
    with pytest.raises(SecretUnusable):
        read_secret("sk\n1", "the variable X", spaces=True)


PARSERS = {"modeld": modeld_parser, "acp-bridge": bridge_parser}


@pytest.mark.parametrize("program", PARSERS)
@pytest.mark.parametrize(
    "typed",
    [["https://me:Marked-1@h/x"], ["doctor", "https://h/x?token=Marked-1"], ["doctor", "--token", "Marked-1"],
     ["doctor", "--api-key=Marked-1"], ["completion", "https://Marked-1@h/x"]],
)  # fmt: skip
def test_a_mistake_in_a_command_line_is_reported_without_what_is_secret_in_it(
    program: str, typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        PARSERS[program]().parse_args(typed)
    said = capsys.readouterr().err
    assert "Marked" not in said
    assert HIDDEN in said


def test_a_mistake_in_a_command_line_is_reported_with_what_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        modeld_parser().parse_args(["starrt"])
    assert "'starrt'" in capsys.readouterr().err


def test_a_key_in_the_place_of_a_setting_is_not_reported(tmp_path: Path) -> None:
    key = "sk-Marked0123456789abcdefgh"
    file = tmp_path / "config.toml"
    for content in (f"{key} = 1", f'backend = "{key}"'):
        file.write_text(content)
        with pytest.raises(SettingInvalid) as refused:
            load_settings({}, file)
        assert "Marked" not in refused.value.message
        assert HIDDEN in refused.value.message
    file.write_text("bakend = 1")
    with pytest.raises(SettingInvalid, match="bakend"):
        load_settings({}, file)


@pytest.mark.parametrize("around", ["\ufeff%s", "%s\u200b", "\n \ufeff %s \u200b\n"])
def test_what_files_put_around_a_key_is_no_part_of_it(around: str) -> None:
    secret = read_secret(around % "sk-X1", "the file k")
    assert secret is not None
    assert (secret.reveal(), secret.source) == ("sk-X1", "the file k")


def test_credentials_of_an_address_are_parted_where_its_readers_part_them() -> None:
    address, header = split_address("https://u%40x:p:q@h@host:8/a?b=1", "the address of lab")
    assert address == "https://host:8/a?b=1"
    assert header is not None
    pair = base64.b64encode(b"u@x:p:q@h").decode()
    assert (header.reveal(), header.source) == (f"Basic {pair}", "the address of lab")
    assert {"p:q@h", "u%40x:p:q@h", pair} <= set(header.known())
    with pytest.raises(SecretUnusable, match=r"^the address of lab cannot be understood as an address$"):
        split_address("http://host:x/", "the address of lab")
    odd, basic = split_address("http://%ED%A0%80:p@host/", "it")
    assert (odd, basic is not None) == ("http://host/", True)


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("https://u:p:q@h@host/", {"u:p:q@h", "p:q@h"}),
        ("https://only@host/", {"only"}),
        ("https://a%20b@host/", {"a%20b", "a b"}),
        ("https://u:p@host/?code=c1&b=2&Policy=c3", {"u:p", "p", "c1", "c3"}),
        ("https://host/?CODE=c1#token=c2", {"c1", "c2"}),
        ("https://host/?codes=c1", set()),
    ],
)
def test_of_an_address_just_its_credentials_are_secret(address: str, secrets: set[str]) -> None:
    assert set(address_secrets(address)) == secrets


@pytest.mark.parametrize(
    ("arguments", "secrets"),
    [
        (["--token", "a", "b"], ["a"]),
        (["--token=a=b", "c"], ["a=b"]),
        (["--token"], [""]),
        (["token", "a"], []),
        (["--name", "a"], []),
        (["--url=https://u:p@h/", "x"], ["u:p", "p", "u:p", "p"]),
        (["https://host/?sig=s1"], ["s1", "s1"]),
        (["host/?sig=s1"], []),
    ],
)
def test_options_that_are_named_like_secrets_have_them(arguments: list[str], secrets: list[str]) -> None:
    assert argument_secrets(arguments) == secrets


def test_a_number_is_no_secret_and_a_header_is_one_with_and_without_its_scheme() -> None:
    assert named_secrets({"API_TOKEN": "8192"}) == []
    assert named_secrets({"AUTH_HEADER_KEY": "Custom Bearer abc"}) == ["Custom Bearer abc", "abc"]


def test_a_secret_that_is_copied_says_so() -> None:
    with pytest.raises(TypeError, match=r"^a secret is not copied$"):
        copy.copy(Secret("x", "here"))
