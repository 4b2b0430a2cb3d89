"""What the command line of `nanobot onboard` says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nanobot.cli.agent import WrongUse


@dataclass(frozen=True, slots=True)
class OnboardOptions:
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
        """Raise `WrongUse` where one option would make another one void."""
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
            raise WrongUse(f"--offline and {named[0]} exclude each other", hint=hint)
        if self.api_key_env and self.api_key_stdin:
            raise WrongUse(
                "--api-key-env and --api-key-stdin exclude each other", hint="There is one key."
            )

    @property
    def about_model(self) -> bool:
        """Whether anything is said of the model."""
        key = self.api_key_env or self.api_key_stdin
        return bool(self.offline or self.model_name or self.base_url or self.context_window or key)

    @property
    def about_telegram(self) -> bool:
        """Whether anything is said of Telegram."""
        return bool(self.telegram_token_env or self.telegram_base_url or self.owner_telegram)

    @property
    def about_owner(self) -> bool:
        """Whether anything is said of the owner."""
        return bool(self.owner_name or self.timezone)
