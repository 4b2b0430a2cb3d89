"""Secret texts: each knows its permitted scopes and its common disguises."""

from __future__ import annotations

import base64
import codecs
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

OWNER, GUEST, STRANGER, GROUP = "owner", "people/fake_2", "people/fake_4", "groups/fake_g"
NOBODY: frozenset[str] = frozenset()
_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Canary:
    """A secret. `knowers` are the scopes in which it may be seen. `plain`: disguises do not count,
    because only the literal text can be redacted."""

    name: str
    knowers: frozenset[str] = NOBODY
    plain: bool = False
    core: str = field(default_factory=lambda: secrets.token_hex(12))

    @property
    def token(self) -> str:
        """The stored text."""
        return f"canary-{self.name}-{self.core}"

    def forms(self) -> tuple[bytes, ...]:
        """The text and its disguises."""
        return (self.core.encode(),) if self.plain else _disguises(self.core)


@lru_cache
def _disguises(core: str) -> tuple[bytes, ...]:
    plain = core.encode()
    turned = codecs.encode(core, "rot13").encode()
    encoded = (base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3))
    return (plain, plain[::-1], plain.hex().encode(), turned, *encoded)


def find_visible(canaries: Iterable[Canary], text: str | bytes, scope: str) -> list[Canary]:
    """Return the canaries that can be read in `text` and are not permitted in `scope`."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    dense = data.translate(None, _SPACE)
    hidden = [one for one in canaries if scope not in one.knowers]
    return [one for one in hidden if any(form in dense for form in one.forms())]
