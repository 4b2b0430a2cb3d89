"""`nanobot onboard`: a wizard that sets nanobot up, or changes its settings."""

from __future__ import annotations

import argparse

from nanobot.cli.command import Parser, count
from nanobot.providers.known_servers import PROVIDERS

_EPILOG = """\
Without --non-interactive, the command asks for each setting, and saves nothing until you
confirm. Other users can see the command line, so pass secrets in environment variables."""

_TEXTS = (
    ("--model-name", "NAME", "the model's name on the server"),
    ("--base-url", "URL", "the URL of the model's API, such as http://127.0.0.1:11434/v1"),
    ("--api-key-env", "VARIABLE", "the environment variable that contains the API key"),
    ("--telegram-token-env", "VARIABLE", "the environment variable that contains the bot's token"),
    ("--telegram-base-url", "URL", "the URL of your own Bot API server"),
    ("--owner-telegram", "ID", "your numeric Telegram id"),
    (
        "--owner-whatsapp",
        "NUMBER",
        "your phone number in digits, to set up WhatsApp as a linked device",
    ),
    ("--owner-name", "NAME", "your name"),
    ("--timezone", "ZONE", "your time zone, such as Europe/Berlin"),
)


def add_onboard(parser: Parser) -> None:
    parser.set_defaults(run=run_onboard)
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.flag("--non-interactive", "ask nothing and use only the options")
    ids = [one.id for one in PROVIDERS]
    known = f"the provider, instead of --base-url: {', '.join(ids)}"
    parser.option("--provider", "ID", known, choices=ids)
    for name, metavar, summary in _TEXTS:
        parser.option(name, metavar, summary)
    parser.flag("--api-key-stdin", "read the API key from standard input")
    parser.option(
        "--context-window", "TOKENS", "the model's context window in tokens", type=count, default=0
    )
    parser.flag("--offline", "try nanobot with the small built-in model")
    parser.flag("--no-test", "save the settings without testing them")
    parser.flag("--restart", "restart the gateway if one is running")
    parser.json()


def run_onboard(options: argparse.Namespace) -> int:
    from nanobot.cli.onboard.wizard import onboard

    return onboard(options)
