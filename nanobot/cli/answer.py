"""The answer of an operation, as a value that says what is in it.

What is printed comes from the gateway or the files: every value passes `one_line` here or `clean`
in `print_text` before it is shown, and a field that is missing shows as nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_cli.text import one_line

if TYPE_CHECKING:
    from datetime import tzinfo


class Data(dict[str, object]):
    """What an operation answers, or an object in it."""

    def field(self, key: str, width: int = 200) -> str:
        """A value as one line; empty where it is missing."""
        value = self.get(key)
        return "" if value is None else one_line(str(value), width)

    def fields(self, *keys: str) -> list[str]:
        """Several values, each as one line."""
        return [self.field(key) for key in keys]

    def lines(self, key: str) -> list[str]:
        """The values of a list, each as one line; of anything else the one that it is."""
        value = self.get(key) or []
        found = value if isinstance(value, list | tuple) else [value]
        return [one_line(str(one), 2_000) for one in found]

    def minute(self, key: str) -> str:
        """A time as `2026-11-21 09:30`, in the zone that it has; empty where it is missing."""
        return self.field(key)[:16].replace("T", " ")

    def local_minute(self, key: str, zone: tzinfo | None) -> str:
        """The same in a time zone, or in the system's."""
        from datetime import datetime

        given = self.field(key)
        moment = datetime.fromisoformat(given).astimezone(zone) if given else ""
        return str(moment)[:16]

    def text(self, key: str) -> str:
        """A text as it is, several lines perhaps."""
        value = self.get(key)
        return "" if value is None else str(value)

    def number(self, key: str) -> int:
        """A count; 0 where it is missing."""
        value = self.get(key)
        return int(value) if isinstance(value, int | float) else 0

    def counts(self, **labels: str) -> str:
        """`2 waiting, 1 failed`; `empty` where all are 0."""
        counted = ((self.number(key), label) for key, label in labels.items())
        return ", ".join(f"{number} {label}" for number, label in counted if number) or "empty"

    def record(self, key: str) -> Data:
        """An object in the data; empty where it is missing."""
        value = self.get(key)
        return Data(value) if isinstance(value, dict) else Data()

    def records(self, key: str) -> list[Data]:
        """A list of objects in the data; empty where it is missing."""
        value = self.get(key)
        found = value if isinstance(value, list) else []
        return [Data(one) for one in found if isinstance(one, dict)]
