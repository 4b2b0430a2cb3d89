"""`nanobot api`: the API keys of other programs.

A running gateway reads the key file again when it changes, so these commands do not ask it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from nanobot.cli.client import Data
from nanobot.cli.command import Options, Parser, agrees, find_shared_folder, settings_of, table

if TYPE_CHECKING:
    from nanobot.channel.keys import ApiKeys

_ADDED = """\
The key for {name}, which uses the memory of {whose}:

  {secret}

The key is shown only once. Programs send it as `Authorization: Bearer KEY` to {address}.
"""
_UNTRUSTED = """
Messages from this program are untrusted content. nanobot never remembers them as your own words.
If one leads to an action that needs approval, nanobot first asks in your other chats.
"""
_OWN_WORDS = """
The last message of each request is treated as the person's own words.
"""
_QUESTION = """\
Many programs add documents, search results, or other text to the person's own words.
Does this one send only the person's own words?"""
_OFF = """\
The API is off. Set channels.api.enabled to true in config.yaml, and restart the gateway.
"""


def add_api(api: Parser) -> None:
    what = api.group("Give other programs access to nanobot through an OpenAI-compatible API.")
    keys = what.group("keys", "manage API keys")
    new = keys.add("add", "create a key for a program (the key is shown only once)", add_key).json()
    new.argument("name", "NAME", "the program's name, such as open-webui")
    whose = (
        "the person whose memory and conversations it uses, such as telegram:12345 (default: the "
        "owner)"
    )
    new.option("--person", "ID", whose)
    new.flag("--writable", "allow it to propose facts over MCP (you accept or drop them)")
    new.flag("--own-words", "declare that the program sends only the person's own words")
    new.flag("--read-system", "include its system messages in conversations, as untrusted content")
    keys.add("list", "list the keys", list_keys).json()
    gone = keys.add("revoke", "revoke a key", revoke_key).json()
    gone.argument("name", "NAME", "the program's name in `api keys list`")


def add_key(options: Options) -> int:
    from nanobot.app.base import make_home
    from nanobot.clock import SystemClock

    settings = settings_of(options.home)
    now = SystemClock(settings.agent.timezone).now()
    make_home(options.home)
    keys = _open_keys(options)
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not options.json
    # Without an answer, the messages are untrusted.
    own_words = options.own_words or (at_terminal and agrees(_QUESTION))
    secret = keys.add(
        options.name,
        options.person,
        now,
        writable=options.writable,
        own_words=own_words,
        reads_system=options.read_system,
    )
    person = options.person.strip() or "owner"
    http = settings.http
    text = _ADDED.format(
        name=options.name,
        whose="the owner" if person == "owner" else person,
        secret=secret,
        address=f"http://{http.host}:{http.port}/v1",
    )
    enabled = "api" in settings.channels and settings.channels["api"].enabled
    text += _OWN_WORDS if own_words else _UNTRUSTED
    machines = {"name": options.name, "person": person, "key": secret, "own_words": own_words}
    return options.print_either(machines, lambda: text if enabled else f"{text}\n{_OFF}")


def list_keys(options: Options) -> int:
    keys = _open_keys(options)
    last = keys.last_used()
    found = [
        Data(
            name=key.name,
            person=key.person,
            created_at=key.created_at,
            last_used=last.get(key.name, ""),
            writable=key.writable,
            own_words=key.own_words,
            reads_system=key.reads_system,
        )
        for key in keys.all()
    ]
    return options.print_result({"keys": found}, format_keys)


def format_keys(data: Data) -> str:
    rows = [
        (
            *one.fields("name", "person"),
            one.field("created_at")[:10],
            one.minute("last_used") or "never",
            *("yes" if one[flag] else "" for flag in ("own_words", "reads_system", "writable")),
        )
        for one in data.records("keys")
    ]
    titles = ("name", "person", "created", "used", "own words", "system", "writable")
    none = "There are no keys. Create one with `nanobot api keys add NAME`.\n"
    return table(rows, *titles) or none


def revoke_key(options: Options) -> int:
    _open_keys(options).revoke(options.name)
    said = f"The key {options.name} has been revoked.\n"
    return options.print_either({"revoked": options.name}, lambda: said)


def _open_keys(options: Options) -> ApiKeys:
    from nanobot.bus.events import API
    from nanobot.channel.keys import ApiKeys

    return ApiKeys(find_shared_folder(options.home) / "state" / "channels" / API)
