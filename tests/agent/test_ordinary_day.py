"""An ordinary day with the agent, from morning to evening, without any approval."""

from __future__ import annotations

from pathlib import Path

from nanobot.providers.port import Reply
from nanobot.testing import ScriptedModel, calls, says, together
from nanobot.testing.channel import FakeChannel
from tests.doubles.web import FakeWeb, SearchHit
from tests.support import running


def turn(*steps: Reply, answer: str = "Done.") -> tuple[Reply, ...]:
    return (*steps, says(answer))


async def test_nobody_is_asked_for_an_approval_on_an_ordinary_day(disk_path: Path) -> None:
    channel, model = FakeChannel(), ScriptedModel()
    async with FakeWeb() as web:
        rolls = web.put("/rolls", b"<html><body><h1>Rolls</h1><p>Flour, yeast.</p></body></html>")
        weather = web.put("/weather", b'{"temperature": 21}', "application/json")
        web.hits = [SearchHit("Rolls", rolls, "How to bake rolls")]
        day = {
            # Before it reads untrusted content, the model may fetch anything.
            "what is the weather?": turn(calls("web_fetch", url=weather)),
            "how do I bake rolls?": turn(
                calls("web_search", query="bake rolls"), calls("web_fetch", url=rolls)
            ),
            "keep the recipe": turn(
                calls("write_file", path="recipes/rolls.md", content="Flour, yeast.\n"),
                calls("exec", command="ls recipes && wc -l recipes/rolls.md"),
                calls("message", text="Here it is.", media=["recipes/rolls.md"]),
            ),
            "remind me at noon to bake the rolls": turn(
                calls("cron", action="remind", schedule="in 20m", message="Bake the rolls")
            ),
            "I like my rolls with rye flour. Remember that.": turn(
                calls("update_memory", quote=["I like my rolls"])
            ),
            "look into two things for me at the same time": turn(
                together(calls("list_dir", path="."), calls("grep", pattern="Flour")),
                calls("spawn", task="Count the files in recipes/.", label="counting"),
            ),
            f"what does {web.url('/plain')} say?": turn(
                calls("web_fetch", url=web.url("/plain")), answer="Hello."
            ),
        }
        web.put("/plain", b"hello there", "text/plain")
        async with running(
            disk_path,
            model,
            channel,
            NANOBOT_TOOLS__WEB__ALLOW_HOSTS=f'["{web.place}"]',
            NANOBOT_TOOLS__WEB__SEARCH__PROVIDER="searxng",
            NANOBOT_TOOLS__WEB__SEARCH__BASE_URL=web.url(""),
        ):
            for said, script in day.items():
                model.then(*script)
                if "spawn" in str(script):
                    model.then(says("Two files."), says("The helper counted two files."))
                await channel.ask(said)
            await channel.receive(len(day) + 3)
    buttons = [button.label for part in channel.sent for button in part.buttons]
    assert buttons == ["Remove"]  # the reminder's, which asks for no approval
    assert model.remaining == 0
    results = [m.text for p in model.prompts for m in p.messages if m.role == "tool"]
    failed = {text for text in results if text.startswith("Error")}
    assert failed == set()
