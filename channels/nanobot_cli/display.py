"""How one exchange looks in the terminal: a spinner, the growing text, then the whole reply.

Everything that comes from outside passes `clean` on its way to the screen. Links are shown as
text, not as terminal hyperlinks, so that a person sees where they lead. On a dumb terminal,
nothing moves. What was shown of a reply that never gets its end stays on the screen.
"""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from nanobot_cli.markup import ChatMarkdown
from nanobot_cli.plain import clean, file_line, one_line
from nanobot_cli.wire import Delta, Reply, Said
from nanobot_cli.wrapping import wrapped

_TAIL = 20_000
"""Characters of a growing reply that are looked at to draw its last lines."""


class Exchange:
    """One message and what comes back, drawn from `with` until its end.

    `command`: the message is for nanobot itself, whose answers are no Markdown.
    """

    def __init__(self, console: Console, *, command: bool = False) -> None:
        self._console = console
        self._command = command
        self._parts: list[str] = []
        self._tail = ""
        self._partial_of = ""
        self._said: set[str] = set()
        self._spinner = Spinner("dots", Text("thinking (Ctrl-C stops)", style="dim"))
        moves = console.is_terminal and not console.is_dumb_terminal
        self._live = (
            Live(
                console=console, get_renderable=self._draw, transient=True, refresh_per_second=10,
                redirect_stdout=False, redirect_stderr=False,
            )
            if moves
            else None
        )  # fmt: skip

    def __enter__(self) -> Exchange:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        self._keep_partial()

    def delta(self, more: Delta) -> None:
        """More of the reply that is being written."""
        if more.restart:
            self._forget_partial()
        self._partial_of = more.id
        self._parts.append(more.text)
        self._tail = (self._tail + more.text)[-_TAIL:]

    def tool(self, hint: str) -> None:
        """A tool runs: a dim line that stays, above what moves."""
        self._console.print(Text(f"· {one_line(hint, 200)}", style="dim"))

    def note(self, text: str) -> None:
        """Something to see that is not part of the reply."""
        self._console.print(Text(clean(text), style="yellow"))

    def said(self, said: Said) -> None:
        """Something the agent said before its reply, and where the files lie that it sent."""
        self._keep_partial()
        self._said.add(said.text.strip())
        if said.text.strip():
            self._console.print(ChatMarkdown(clean(said.text)))
        for file in said.files:
            self._console.print(Text(file_line(file), style="cyan"), soft_wrap=True)

    def refused(self, error: str, hint: str) -> None:
        """The gateway would not take the message, or went away."""
        self._keep_partial()
        self._console.print(Text(clean(f"{error}\n{hint}".strip()), style="red"))

    def reply(self, reply: Reply) -> None:
        """The last word: takes the place of the text that was growing, if there is any."""
        in_reply = bool(reply.text.strip()) and reply.id == self._partial_of
        if in_reply or "".join(self._parts).strip() in self._said:
            self._forget_partial()
        self._keep_partial()
        if reply.text.strip():
            self._print(reply)
        if reply.outcome == "stopped":
            self._console.print(Text("(stopped)", style="dim"))

    def _print(self, reply: Reply) -> None:
        ours = reply.outcome != "done" or (self._command and not reply.prompt_tokens)
        text = clean(reply.text)
        self._console.print(
            Text(wrapped(text.rstrip(), self._console.width)) if ours else ChatMarkdown(text)
        )

    def _keep_partial(self) -> None:
        text = clean("".join(self._parts)).rstrip()
        self._forget_partial()
        if text:
            self._console.print(Text(text))

    def _forget_partial(self) -> None:
        self._parts.clear()
        self._tail = ""

    def _draw(self) -> RenderableType:
        rows = max(1, self._console.height - 3)
        tail = clean(self._tail[-rows * self._console.width :])
        if not tail.strip():
            return self._spinner
        lines = Text(tail).wrap(self._console, self._console.width)
        return Group(*lines[-rows:], self._spinner)
