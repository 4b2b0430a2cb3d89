"""Who changes a long-term file, why, and on what evidence: what every write carries.

The version that a write becomes keeps all of it, so that each line can be explained afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nanobot.memory.text.lines import Operation

Author = Literal["start", "consolidate", "dream", "agent", "you", "restore", "forget", "sync"]
"""`you` is the person: their editor, and what they confirm or ask for by a command. `start` is
nobody: the files as they stood when their versions began."""

TAGS: dict[Author, str] = {
    "start": "[Start]",
    "consolidate": "[Consolidate]",
    "dream": "[Dream]",
    "agent": "[Agent]",
    "you": "[You]",
    "restore": "[Restore]",
    "forget": "[Forget]",
    "sync": "[Sync]",
}
"""How the subject line of a version begins."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a long-term file.

    `summary` is a line for people. `session` and `turn` are where an agent's own edit was made,
    `cursors` the history entries that a learned change rests on, `operations` the lines it
    concerns, each with the cursor behind it where there is one. Changes of one scope with the same
    `run` (not empty) are one version to people: shown together and undone together.
    """

    author: Author
    summary: str = ""
    session: str = ""
    turn: str = ""
    cursors: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()
    run: str = ""
