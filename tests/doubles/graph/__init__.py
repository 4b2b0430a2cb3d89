"""A real HTTP server on a loopback port that speaks Meta's Graph API for WhatsApp, for tests.

    async with FakeGraphAPI() as graph:
        # `channels.whatsapp` gets what graph.settings() says
        assert await graph.subscribe("http://127.0.0.1:8087/whatsapp") == 200
        graph.say("Hello")
        assert await graph.receive(1) == ["Hello yourself."]
        assert not graph.violations

It plays Meta's part: it signs what people do and posts it to the webhook until that says 200, keeps
the files and hands them out for five minutes at a time, knows who wrote within 24 hours, and says
what became of each message. It checks every request strictly (`rules`) and can misbehave on command
(`faults`). People act through the methods of `people`; what the business did is seen through those
of `seen`. Nothing in it sleeps: whatever waits, waits for something to happen. By hand:

    python -m tests.doubles.graph --port 8082 --webhook http://127.0.0.1:8087/whatsapp

serves until it is interrupted: each line on standard input is said to the business, and what it
answers is printed.
"""

from __future__ import annotations

from tests.doubles.graph.server import FakeGraphAPI
from tests.doubles.graph.values import Button, Call, Sent, Upload, Violation
from tests.doubles.graph.world import PERSON

__all__ = ["PERSON", "Button", "Call", "FakeGraphAPI", "Sent", "Upload", "Violation"]
