"""Packs events into the payloads that Meta posts: one each, or several together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.doubles.graph.values import Json
from tests.doubles.graph.webhook import Webhook

_ACCOUNT = "300000000000003"


@dataclass(slots=True)
class Batch:
    """Events of one payload."""

    contacts: list[Json] = field(default_factory=list)
    messages: list[object] = field(default_factory=list)
    statuses: list[object] = field(default_factory=list)


class Notices:
    """`metadata` identifies the phone number of all payloads."""

    def __init__(self, webhook: Webhook, metadata: Json) -> None:
        self._webhook = webhook
        self._metadata = metadata
        self._batch: Batch | None = None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Send all events of the block in one request, at the end."""
        batch = self._batch = Batch()
        try:
            yield
        finally:
            self._batch = None
        self._send(batch)

    def message(self, message: object, contact: Json | None = None) -> None:
        """Add a person's message, or something in place of one."""
        self._put(Batch([contact] if contact else [], [message]))

    def status(self, status: object) -> None:
        """Add a status of a business message."""
        self._put(Batch(statuses=[status]))

    def value(self, **fields: object) -> Json:
        """Return the `value` of a change with these fields."""
        return {"messaging_product": "whatsapp", "metadata": self._metadata, **fields}

    def push(self, *changes: object) -> None:
        """Send a request with exactly these changes."""
        entry: Json = {"id": _ACCOUNT, "changes": list(changes)}
        self._webhook.add({"object": "whatsapp_business_account", "entry": [entry]})

    def _put(self, one: Batch) -> None:
        if self._batch is None:
            self._send(one)
            return
        self._batch.contacts += [new for new in one.contacts if new not in self._batch.contacts]
        self._batch.messages += one.messages
        self._batch.statuses += one.statuses

    def _send(self, batch: Batch) -> None:
        values = []
        if batch.messages:
            contacts: Json = {"contacts": batch.contacts} if batch.contacts else {}
            values.append(self.value(**contacts, messages=batch.messages))
        if batch.statuses:
            values.append(self.value(statuses=batch.statuses))
        if values:
            self.push(*({"field": "messages", "value": value} for value in values))
