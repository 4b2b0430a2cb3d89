"""`nanobot onboard`: a wizard that sets nanobot up, or changes how it is set up.

It asks, shows what will be written, writes it, signs in and says hello.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.command import WrongUsage, add, count

if TYPE_CHECKING:
    from nanobot.cli.command import Commands

_EPILOG = """\
Without --non-interactive everything is asked for, and nothing is written before you have seen it.
Secrets are never given on the command line, which other users can read: name a variable."""

_TEXTS = (
    ("--model-name", "NAME", "model name on that server"),
    ("--base-url", "URL", "where its API is, such as http://127.0.0.1:11434/v1"),
    ("--api-key-env", "VARIABLE", "the environment variable that holds the API key"),
    ("--telegram-token-env", "VARIABLE", "the environment variable that holds the bot's token"),
    ("--telegram-base-url", "URL", "where the Bot API is, for a server of your own"),
    ("--owner-telegram", "ID", "your id at Telegram, a number"),
    ("--owner-whatsapp", "NUMBER", "set WhatsApp up as a linked device; your number, in digits"),
    ("--owner-name", "NAME", "what you are called"),
    ("--timezone", "ZONE", "your time zone, such as Europe/Berlin"),
)
_OF_A_SERVER = ("model_name", "base_url", "context_window", "api_key_env", "api_key_stdin")


def add_onboard(commands: Commands) -> None:
    """`nanobot onboard`."""
    parser = add(commands, "onboard", "set nanobot up, or change how it is set up", _onboard)
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.flag("--non-interactive", "ask nothing; do what the options say")
    for name, metavar, summary in _TEXTS:
        parser.option(name, metavar, summary, default="")
    parser.flag("--api-key-stdin", "read the API key from standard input")
    parser.option("--context-window", "TOKENS", "what the model takes", type=count, default=0)
    parser.flag("--offline", "the small built-in model, to try nanobot out")
    parser.flag("--no-test", "write everything down without trying it")
    parser.flag("--restart", "restart the gateway if one is running")
    parser.json()


def _onboard(options: argparse.Namespace) -> int:
    from nanobot.cli.onboard.wizard import onboard

    if options.offline and (named := _said_of_a_server(options)):
        hint = "The built-in model is no server; leave one or the other out."
        option = "--" + named[0].replace("_", "-")
        raise WrongUsage(f"--offline and {option} exclude each other", hint=hint)
    if options.api_key_env and options.api_key_stdin:
        said = "--api-key-env and --api-key-stdin exclude each other"
        raise WrongUsage(said, hint="There is one key.")
    return onboard(options)


def is_about_model(options: argparse.Namespace) -> bool:
    """Whether the command line says anything of the model."""
    return bool(options.offline or _said_of_a_server(options))


def _said_of_a_server(options: argparse.Namespace) -> list[str]:
    return [name for name in _OF_A_SERVER if getattr(options, name)]
