"""A real HTTP server on a loopback port that speaks Meta's Graph API for WhatsApp, for tests.

    async with FakeGraphAPI() as graph:
        # `channels.whatsapp` gets graph.settings()
        assert await graph.subscribe("http://127.0.0.1:8087/whatsapp") == 200
        graph.say("Hello")
        assert await graph.receive(1) == ["Hello yourself."]
        assert not graph.violations

It plays Meta: it signs the people's events and posts them to the webhook until the answer is 200,
stores the files and gives out addresses for five minutes, knows who wrote within 24 hours, and
reports the fate of each message. It checks every request strictly (`rules`) and can misbehave on
command (`faults`). Methods of `people` act as people, and methods of `seen` show the business's
actions. Nothing in it sleeps: every wait is for an event. On the command line

    python -m tests.doubles.graph --port 8082 --webhook http://127.0.0.1:8087/whatsapp

serves until it is interrupted. Each line on standard input is sent to the business, and its answers
are printed."""

from __future__ import annotations

from tests.doubles.graph.server import FakeGraphAPI
from tests.doubles.graph.values import Button, Call, Sent, Upload, Violation
from tests.doubles.graph.world import PERSON

__all__ = ["PERSON", "Button", "Call", "FakeGraphAPI", "Sent", "Upload", "Violation"]
