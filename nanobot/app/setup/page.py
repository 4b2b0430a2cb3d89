"""Set-up on the page: the questions of `Interview`, one at a time, for the browser that began it.

All answers are in memory until they are saved. They are dropped after half an hour, at a restart,
and when another browser begins. A secret never returns to the page, typed or configured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from nanobot.app.setup.changes import ConfigPart, write
from nanobot.app.setup.interview import Interview, Topic, list_topics
from nanobot.app.setup.questions import SetupOptions, in_words
from nanobot.channel import Operation, WentBack
from nanobot.clock import Clock, with_timeout
from nanobot.commands import optional_text, text_argument
from nanobot.config.changes import ConfigPlan
from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.errors import NanobotError
from nanobot.gateway.channels import Supervisor
from nanobot.security.redaction import Redactor
from nanobot.tasks import Background
from nanobot.text import clean, one_line

SECONDS = 1_800.0
"""The longest set-up."""
_ANSWER_SECONDS = 2.0  # to wait for the next question, before the page shows that it waits
_CHOICES = 1_000
_LINE = 200
_TEXT, _ANSWER = 2_000, 4_000  # characters of a text here, and of an answer

Answer = dict[str, object]
Request = Mapping[str, object]


class Question(Struct, frozen=True):
    """A question, as the page shows it. `number` counts the questions. A secret has no default
    here, but `keeps` its value if the answer is empty. A review shows the `summary` by topic, and
    the `diff` of the files."""

    kind: Literal["text", "secret", "choice", "confirm", "review"]
    text: str
    default: str = ""
    keeps: bool = False
    choices: Sequence[str] = ()
    summary: Sequence[tuple[str, str]] = ()
    diff: Sequence[str] = ()
    number: int = 0


class PagePerson:
    """A `nanobot.channel.Person` in a browser. `notes` are the texts since the last answer."""

    def __init__(self, redactor: Redactor) -> None:
        self.title = ""
        self.notes: list[str] = []
        self.question: Question | None = None
        self._redactor = redactor
        self._answer: asyncio.Future[str | None] | None = None
        self._count = 0
        self._last = "", ""
        """The last question for a text, and its answer."""
        self._asked = asyncio.Event()  # also set at the end

    def say(self, text: str) -> None:
        """See `Person`, here and below."""
        lines = (line.strip() for line in self._show(text).splitlines())
        self._end_progress()
        self.notes.append("\n".join(filter(None, lines)))

    async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
        if secret:
            answer = await self._put(Question("secret", question, keeps=bool(default)))
            self._redactor.add([answer])
        else:
            asked, typed = self._last
            shown = typed if asked == question else default  # it was rejected
            answer = await self._put(Question("text", question, shown))
            self._last = question, answer
        return answer or default

    async def confirm(self, question: str, *, default: bool = True) -> bool:
        asked = Question("confirm", question, "yes" if default else "no")
        return await self._put(asked) == "yes"

    async def choose(self, question: str, choices: Sequence[str], default: int = 0) -> int:
        """Show at most `_CHOICES`, and always the last one, which types another name. A server
        could list its key as a model, so choices are redacted too."""
        shown: list[int] = [*range(len(choices))]
        if len(shown) > _CHOICES:
            shown = [*shown[: _CHOICES - 1], shown[-1]]
        lines = [one_line(self._show(choices[at]), _LINE) for at in shown]
        at = shown.index(default) if default in shown else 0
        answer = await self._put(Question("choice", question, str(at), choices=lines))
        return shown[int(answer)]

    async def review(self, summary: Sequence[tuple[str, str]], diff: Sequence[str]) -> None:
        """Show the changes until the person saves them."""
        shown = [(topic, self._show(value)) for topic, value in summary]
        lines = [self._show(line) for line in diff]
        await self._put(Question("review", "Save these changes?", summary=shown, diff=lines))

    async def wait(self) -> None:
        """Wait for the next question, or the end, but only for a moment."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._asked.wait(), _ANSWER_SECONDS)

    def end(self) -> None:
        """Ask nothing more."""
        self.question = None
        self._asked.set()

    def answer(self, number: object, text: str | None) -> None:
        """Answer the question with this number, or go back (None). Raises `NanobotError`."""
        question, waiting = self.question, self._answer
        if question is None or waiting is None or question.number != number or waiting.done():
            raise NanobotError("this question was already answered")
        if text is not None and not _fits(question, text):
            raise NanobotError("this is not one of the answers")
        if text is not None and len(text) > _ANSWER:
            raise NanobotError(f"an answer can have at most {_ANSWER:,} characters")
        waiting.set_result(text)
        self.question = None
        self._asked.clear()

    def _show(self, text: str) -> str:
        """Return text that may come from a server, for the page."""
        return self._redactor.redact(clean(text))[:_TEXT]

    def _end_progress(self) -> None:
        """Drop the last note if it was about something that has ended now."""
        if self.notes and self.notes[-1].endswith("…"):
            self.notes.pop()

    async def _put(self, question: Question) -> str:
        self._count += 1
        self._end_progress()
        self.question = replace(question, number=self._count, text=self._show(question.text))
        self._answer = asyncio.get_running_loop().create_future()
        self._asked.set()
        answer = await self._answer
        self.notes.clear()
        if answer is None:
            raise WentBack
        return answer


def _fits(question: Question, text: str) -> bool:
    match question.kind:
        case "choice":
            return len(text) < 5 and text.isdecimal() and int(text) < len(question.choices)
        case "confirm":
            return text in ("yes", "no")
    return True


class PageInterview(Interview):
    """The questions about the topics that the person chose, by name. `zone` is their browser's."""

    def __init__(
        self,
        person: PagePerson,
        home: Path,
        topics: Sequence[str],
        supervisor: Supervisor,
        zone: str,
    ) -> None:
        super().__init__(person, SetupOptions(home))
        self._page, self._topics, self._supervisor = person, topics, supervisor
        self._zone = zone

    def find_zone(self) -> str:
        return self._zone or super().find_zone()

    def show_heading(self, text: str) -> None:
        self._page.title = text

    async def is_wanted(self, topic: Topic) -> bool:
        return topic.name in self._topics

    async def confirm(self, part: ConfigPart, planned: ConfigPlan) -> bool:
        self.show_heading("Review")
        secrets = [f"+{name}=…" for name in planned.edit.secrets]
        await self._page.review(part.summary, [*planned.lines, *secrets])
        return True

    @asynccontextmanager
    async def borrow(self, channel: str) -> AsyncIterator[None]:
        named = {"name": channel}
        is_lent = (await self._supervisor.lend(named))["lent"]
        try:
            yield
        finally:
            if is_lent:
                await self._supervisor.take_back(named)


class _Setup(Struct):
    """A set-up. `session` is the id of its browser. `changed` has the written keys and secrets,
    once it is saved. One that `is_saving` cannot be cancelled."""

    session: str
    person: PagePerson
    task: asyncio.Task[None] | None = None
    is_saving: bool = False
    changed: Sequence[str] | None = None
    sign_in: Sequence[str] = ()
    error: str = ""

    @property
    def state(self) -> str:
        if self.changed is not None:
            return "saved" if self.changed else "unchanged"
        if self.error:
            return "failed"
        return "asks" if self.person.question else "works"


class Setups:
    """The operations `setup.…`, for one browser at a time. The page decides who may call them."""

    def __init__(
        self,
        running: Settings,
        supervisor: Supervisor,
        clock: Clock,
        background: Background,
        redactor: Redactor,
    ) -> None:
        self._running, self._supervisor, self._clock = running, supervisor, clock
        self._background, self._redactor = background, redactor
        self._now: _Setup | None = None

    def table(self) -> Mapping[str, Operation]:
        return {
            "setup.show": self._show,
            "setup.begin": self._begin,
            "setup.answer": self._answer,
            "setup.save": self._save,
            "setup.cancel": self._cancel,
        }

    async def _show(self, arguments: Request) -> Answer:
        """Return the `state` of the set-up that the browser `session` began, the `topics` to choose
        from, and whether a model is set (`has_model`). Channels that are set up can be chosen only
        with `all`."""
        settings = await asyncio.to_thread(load_settings, self._running.home)
        providers = {settings.model.provider, self._running.model.provider}
        topics = [
            {"name": one.name, "title": one.title, "is_set": _is_set(one, settings)}
            for one in list_topics()
            if one.is_basic or arguments.get("all") is True or not _is_set(one, settings)
        ]
        shown: Answer = {"topics": topics, "has_model": providers != {"offline"}}
        if (now := self._now) is None or now.session != arguments.get("session"):
            return {**shown, "state": "none", "question": None}
        question = now.person.question
        return {
            **shown,
            "state": now.state,
            "title": now.person.title,
            "notes": list(now.person.notes),
            "question": asdict(question) if question else None,
            "error": now.error,
            "sign_in": list(now.sign_in),
        }

    async def _begin(self, arguments: Request) -> Answer:
        """Begin the set-up of `topics` for the browser `session` in the time `zone`. Ends the
        previous one."""
        session, wanted = text_argument(arguments, "session"), arguments.get("topics")
        offered = (await self._show(arguments))["topics"]
        assert isinstance(offered, list)
        names = [one["name"] for one in offered]
        topics = [one for one in names if isinstance(wanted, list) and one in wanted]
        if not topics:
            raise NanobotError("select what you want to set up")
        while self._now is not None:  # another tab may begin too
            await self._end()
        zone = optional_text(arguments, "zone")
        now = self._now = _Setup(session, PagePerson(self._redactor))
        now.task = self._background.start(self._run(now, topics, zone), name="set-up on the page")
        await now.person.wait()
        return {"topics": topics}

    async def _answer(self, arguments: Request) -> Answer:
        """Answer the question `number` of the browser `session` with `answer`, or go `back`."""
        person = self._find(arguments).person
        topic, question = person.title, person.question
        is_back = arguments.get("back") is True
        if question and question.kind == "review" and not is_back:
            raise NanobotError("only setup.save saves the changes")
        text = None if is_back else optional_text(arguments, "answer")
        person.answer(arguments.get("number"), text)
        await person.wait()
        return {"topic": topic}

    async def _save(self, arguments: Request) -> Answer:
        """Write the changes that the question `number` shows, for the next start."""
        now = self._find(arguments)
        if (question := now.person.question) is None or question.kind != "review":
            raise NanobotError("there is nothing to save yet")
        now.person.answer(arguments.get("number"), "")
        now.is_saving = True
        assert now.task is not None
        await asyncio.wait([now.task])
        if now.changed is None:
            raise NanobotError(now.error)
        return {"changed": list(now.changed)}

    async def _cancel(self, arguments: Request) -> Answer:
        """Drop the answers."""
        self._find(arguments)
        await self._end()
        return {}

    def _find(self, arguments: Request) -> _Setup:
        if self._now is None or self._now.session != text_argument(arguments, "session"):
            raise NanobotError("this set-up has ended", hint="Begin again.")
        return self._now

    async def _end(self) -> None:
        now, self._now = self._now, None
        if now is not None and now.task is not None:
            if not now.is_saving:
                now.task.cancel()
            await asyncio.wait([now.task])

    async def _run(self, now: _Setup, topics: Sequence[str], zone: str) -> None:
        home, person = self._running.home, now.person
        interview = PageInterview(person, home, topics, self._supervisor, zone)
        try:
            answered = await with_timeout(self._clock, SECONDS, interview.run())
            assert answered is not None
            before, part = answered
            if not part.is_empty:
                await asyncio.to_thread(write, home, before, part)
            keys = [".".join(one.path) for one in part.changes]
            now.changed = [*keys, *part.secrets, *(["your name"] if part.name else ())]
            now.sign_in = part.sign_in
        except TimeoutError:
            now.error = "The set-up took more than half an hour. Nothing was changed."
        except NanobotError as error:
            now.error = self._redactor.redact(in_words(error))
        finally:
            person.end()


def _is_set(topic: Topic, settings: Settings) -> bool:
    if topic.name == "model":
        return settings.model.provider != "offline"
    return topic.name in settings.channels or topic.name in settings.owner
