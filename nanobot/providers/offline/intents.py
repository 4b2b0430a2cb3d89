"""What a person can want of the offline model: the values that `understand` finds in a message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep `statement`, in the person's own words. Not `asked`: it was said in passing."""

    statement: str
    asked: bool = True


@dataclass(frozen=True, slots=True)
class RememberThat:
    """ "Remember that": what was said just before."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Take a fact out of memory."""

    about: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question."""

    question: str


@dataclass(frozen=True, slots=True)
class Recite:
    """ "What do you know about me?"; of today's notes where `notes`."""

    notes: bool = False


@dataclass(frozen=True, slots=True)
class TellSaid:
    """ "What did I just say?": `which` is last, first or all."""

    which: str


@dataclass(frozen=True, slots=True)
class TakeNote:
    """A line for today's notes."""

    text: str


@dataclass(frozen=True, slots=True)
class Remind:
    """Say it when the time comes that `text` holds."""

    text: str


@dataclass(frozen=True, slots=True)
class ListReminders:
    """What is scheduled."""


@dataclass(frozen=True, slots=True)
class CancelReminder:
    """Take something from the schedule."""

    id: str


@dataclass(frozen=True, slots=True)
class FetchPage:
    """What a page of the web says."""

    url: str


@dataclass(frozen=True, slots=True)
class SearchWeb:
    """Pages about something."""

    query: str


@dataclass(frozen=True, slots=True)
class RunCommand:
    """A command of the shell, exactly as it was written."""

    command: str


@dataclass(frozen=True, slots=True)
class ReadSkill:
    """The instructions of a skill."""

    name: str


@dataclass(frozen=True, slots=True)
class ListFiles:
    """The names in a folder."""

    path: str = "."


@dataclass(frozen=True, slots=True)
class ReadFile:
    """What a file says."""

    path: str


@dataclass(frozen=True, slots=True)
class SendFile:
    """The file itself, into this chat."""

    path: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A new text for a file, or more text at its end."""

    path: str
    content: str
    append: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Other words in a file."""

    path: str
    old: str
    new: str
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class FindFiles:
    """Files by name, a glob."""

    pattern: str
    path: str = "."


@dataclass(frozen=True, slots=True)
class SearchFiles:
    """Files by what is in them, literally."""

    text: str
    path: str = "."


@dataclass(frozen=True, slots=True)
class TellTime:
    """The time and the date."""


@dataclass(frozen=True, slots=True)
class Help:
    """Who are you, what can you do."""


@dataclass(frozen=True, slots=True)
class Courtesy:
    """A greeting, thanks, a farewell, a yes: `kind` names the answer."""

    kind: str


@dataclass(frozen=True, slots=True)
class Statement:
    """Something said that is neither a wish nor worth keeping by itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """Everything else."""


Intent = (
    Remember | RememberThat | Forget | Ask | Recite | TakeNote | ListFiles | ReadFile | WriteFile
    | ReplaceText | FindFiles | SearchFiles | SendFile | TellTime | TellSaid | Help | Courtesy
    | Statement | Unclear | Remind | ListReminders | CancelReminder | FetchPage | SearchWeb
    | RunCommand | ReadSkill
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wish:
    """An intent and the language to answer it in."""

    intent: Intent
    chinese: bool = False
