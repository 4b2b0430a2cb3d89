"""A home in a temporary folder, and what a person would read about its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.errors import ConfigError


class Home:
    """A nanobot home whose files a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.yaml"
        self.secrets = folder / "secrets.env"

    def write(self, text: str | bytes, *, mode: int = 0o600) -> None:
        """Make `text` the configuration."""
        _write(self.config, text, mode)

    def write_secrets(self, text: str | bytes, *, mode: int = 0o600) -> None:
        """Make `text` the secrets."""
        _write(self.secrets, text, mode)

    def load(self, environ: Mapping[str, str] | None = None) -> Settings:
        """The settings, from an environment that holds nothing else."""
        return load_settings(self.folder, environ or {})

    def error(self, environ: Mapping[str, str] | None = None) -> ConfigError:
        """The error that loading ends in."""
        with pytest.raises(ConfigError) as caught:
            self.load(environ)
        return caught.value

    def complaint(self, text: str | bytes | None = None, **environ: str) -> str:
        """What a person reads about configuration `text`, with the folder shortened to HOME."""
        if text is not None:
            self.write(text)
        return self.error(environ).for_people().replace(str(self.folder), "HOME")


def _write(path: Path, text: str | bytes, mode: int) -> None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
