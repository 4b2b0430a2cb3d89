"""`nanobot onboard`: a wizard that sets nanobot up, or changes how it is set up.

It asks, shows what will be written, writes it, signs in and says hello.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nanobot.cli.command import WrongUsage, add, count, words

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


def add_onboard(commands: Commands) -> None:
    """`nanobot onboard`."""
    parser = add(commands, "onboard", "set nanobot up, or change how it is set up", _onboard)
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.flag("--non-interactive", "ask nothing; do what the options say")
    for name, metavar, summary in _TEXTS:
        parser.add_argument(name, type=words, metavar=metavar, help=summary)
    parser.flag("--api-key-stdin", "read the API key from standard input")
    parser.option("--context-window", "TOKENS", "what the model takes", type=count, default=0)
    parser.flag("--offline", "the small built-in model, to try nanobot out")
    parser.flag("--no-test", "write everything down without trying it")
    parser.flag("--restart", "restart the gateway if one is running")
    parser.json()


def _onboard(options: argparse.Namespace) -> int:
    from nanobot.cli.onboard.wizard import onboard

    given = {name: value for name, value in vars(options).items() if value is not None}
    given = {name: value for name, value in given.items() if name in OnboardOptions._fields}
    chosen = OnboardOptions(
        **given,
        home_is_chosen=bool(options.given_home or os.environ.get("NANOBOT_HOME")),
        attended=not options.non_interactive,
        as_json=options.json,
        test=not options.no_test,
    )
    return onboard(chosen)


class OnboardOptions(NamedTuple):
    """Empty and 0: not said. The `_env` are names of variables that hold a secret."""

    home: Path
    home_is_chosen: bool = False
    attended: bool = True
    as_json: bool = False
    test: bool = True
    offline: bool = False
    restart: bool = False
    model_name: str = ""
    base_url: str = ""
    context_window: int = 0
    api_key_env: str = ""
    api_key_stdin: bool = False
    telegram_token_env: str = ""
    telegram_base_url: str = ""
    owner_telegram: str = ""
    owner_whatsapp: str = ""
    owner_name: str = ""
    timezone: str = ""

    def expect_sense(self) -> None:
        """Raise `WrongUsage` where one option would make another one void."""
        of_a_server = {
            "--model-name": self.model_name,
            "--base-url": self.base_url,
            "--context-window": self.context_window,
            "--api-key-env": self.api_key_env,
            "--api-key-stdin": self.api_key_stdin,
        }
        named = [option for option, value in of_a_server.items() if value]
        if self.offline and named:
            hint = "The built-in model is no server; leave one or the other out."
            raise WrongUsage(f"--offline and {named[0]} exclude each other", hint=hint)
        if self.api_key_env and self.api_key_stdin:
            raise WrongUsage(
                "--api-key-env and --api-key-stdin exclude each other", hint="There is one key."
            )

    @property
    def about_model(self) -> bool:
        """Whether anything is said of the model."""
        key = self.api_key_env or self.api_key_stdin
        return bool(self.offline or self.model_name or self.base_url or self.context_window or key)
