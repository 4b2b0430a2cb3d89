"""A home in a temporary folder, and the messages about its configuration."""

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
        """Return the settings, with only these variables."""
        return load_settings(self.folder, environ or {})

    def error(self, environ: Mapping[str, str] | None = None) -> ConfigError:
        """Return the error of loading."""
        with pytest.raises(ConfigError) as caught:
            self.load(environ)
        return caught.value

    def complaint(self, text: str | bytes | None = None, **environ: str) -> str:
        """Return the message about configuration `text`, with the folder shortened to HOME."""
        if text is not None:
            self.write(text)
        return self.error(environ).for_people().replace(str(self.folder), "HOME")


def _write(path: Path, text: str | bytes, mode: int) -> None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
