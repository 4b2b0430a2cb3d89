"""When the lines of a file were written, worked out version by version and remembered. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from nanobot.memory.text.layout import split


@dataclass(slots=True)
class WrittenLines:
    """The lines of a file, each with the time (in seconds since 1970) of the version that brought
    it in as it stands, as of version `number`, whose commit is `commit`."""

    number: int = 0
    commit: str = ""
    times: dict[str, int] = field(default_factory=dict)

    def became(self, text: str, time: int) -> None:
        """The next version of the file says `text`."""
        lines = {line.strip() for line in split(text) if line.strip()}
        self.times = {line: self.times.get(line, time) for line in lines}
