"""Draw the terminal's pictures: `python -m scripts.picture`.

The conversations are real. `nanobot agent` runs in a separate terminal, with a new home. The
README's picture is a chat with the built-in model, whose typed texts are below. In the others, a
scripted server is the model. The final screens are drawn as SVG without external resources."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.doubles.openai.answers import Answer
from tests.doubles.openai.server import FakeOpenAI
from tests.screen import ChatScreen, chat_screen

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
README = (
    "My dentist is Dr. Kim, remember that.",
    "/new",
    "Who is my dentist?",
    "/memory why dentist",
)
QUESTION = "How do I count the lines of my notes?"
ANSWER = """\
Two steps:

1. Find the files
   - only `*.txt`
2. Count their lines

```python
from pathlib import Path

for path in Path("notes").glob("*.txt"):
    print(path.name, len(path.read_text().splitlines()))
```

| file | lines |
|---|---:|
| diary.txt | 1204 |
| garden.txt | 87 |

> The diary is by far the longest.
"""
EARLIER = (
    ("I want the green kettle from the market.", "Noted: the **green kettle**."),
    ("When do the roses need water?", "In summer, twice a week."),
    ("Write a poem about my kettle", "*The kettle sings.*"),
)


async def talk(screen: ChatScreen, *texts: str) -> None:
    """Type texts, each after the answer to the last one."""
    for text in texts:
        await screen.rest()
        screen.type(f"{text}\r")
        await screen.rest()


async def draw_readme(environ: Mapping[str, str]) -> None:
    async with chat_screen(environ=environ, size=(88, 60)) as screen:
        await screen.wait_for("/help")
        await talk(screen, *README)
        save(screen, "chat")


async def draw_answer(environ: Mapping[str, str]) -> None:
    async with chat_screen(environ=environ, size=(80, 30)) as screen:
        await screen.wait_for("/help")
        await talk(screen, QUESTION)
        save(screen, "terminal-answer")


async def draw_resume(environ: Mapping[str, str]) -> None:
    async with chat_screen(environ=environ, size=(80, 16)) as screen:
        await screen.wait_for("/help")
        for asked, _ in EARLIER:
            await talk(screen, "/new", asked)
        await talk(screen, "/resume kettle")
        save(screen, "terminal-resume")


def save(screen: ChatScreen, name: str) -> None:
    (PICTURES / f"{name}.svg").write_text(screen.draw(name=name.replace("-", "")))


def author(text: str) -> Answer:
    """Answer as the model."""
    said = dict(EARLIER)
    return Answer(next((said[one] for one in said if one in text), ANSWER))


def make_home(home: Path, base_url: str) -> Path:
    """Create a home whose model is a server."""
    home.mkdir(mode=0o700)
    model = {"name": "qwen3:8b", "base_url": base_url, "context_window": 32_768}
    (home / "config.yaml").write_text(json.dumps({"model": model}))
    (home / "config.yaml").chmod(0o600)
    return home


async def draw_all() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await draw_readme({**os.environ, "NANOBOT_HOME": f"{folder}/offline"})
        async with FakeOpenAI(lambda request: author(request.last_user_text)) as server:
            for number, draw in enumerate((draw_answer, draw_resume)):
                home = make_home(Path(folder, str(number)), server.base_url)
                await draw({**os.environ, "NANOBOT_HOME": str(home)})


if __name__ == "__main__":
    sys.exit(asyncio.run(draw_all()))
