"""`nanobot onboard`: a wizard that sets nanobot up, or changes its settings."""

from __future__ import annotations

import argparse

from nanobot.cli.command import Commands, count
from nanobot.providers.catalogue import PROVIDERS

_EPILOG = """\
Without --non-interactive it asks for everything, and writes nothing before you have seen it.
Secrets are never given on the command line, which other users can read: name a variable."""

_TEXTS = (
    ("--model-name", "NAME", "model name on that server"),
    ("--base-url", "URL", "where its API is, such as http://127.0.0.1:11434/v1"),
    ("--api-key-env", "VARIABLE", "the environment variable that holds the API key"),
    ("--telegram-token-env", "VARIABLE", "the environment variable that holds the bot's token"),
    ("--telegram-base-url", "URL", "the address of your own Bot API server"),
    ("--owner-telegram", "ID", "your id at Telegram, a number"),
    ("--owner-whatsapp", "NUMBER", "set WhatsApp up as a linked device; your number, in digits"),
    ("--owner-name", "NAME", "your name"),
    ("--timezone", "ZONE", "your time zone, such as Europe/Berlin"),
)


def add_onboard(commands: Commands) -> None:
    parser = commands.add("onboard", "set nanobot up, or change how it is set up", _onboard)
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.flag("--non-interactive", "ask nothing; do what the options say")
    ids = [one.id for one in PROVIDERS]
    known = f"whose model, in place of a URL: {', '.join(ids)}"
    parser.option("--provider", "ID", known, choices=ids)
    for name, metavar, summary in _TEXTS:
        parser.option(name, metavar, summary)
    parser.flag("--api-key-stdin", "read the API key from standard input")
    parser.option("--context-window", "TOKENS", "context window in tokens", type=count, default=0)
    parser.flag("--offline", "the small built-in model, to try nanobot out")
    parser.flag("--no-test", "write everything down without trying it")
    parser.flag("--restart", "restart the gateway if one is running")
    parser.json()


def _onboard(options: argparse.Namespace) -> int:
    from nanobot.cli.onboard.wizard import onboard

    return onboard(options)
