"""The transcript of a conversation, on a `Surface`.

The complete blocks of an answer are printed as they come, rendered as in the final reply. Its last
block, running tools, and the person's messages that no turn has taken yet are live. Nothing is
printed within an answer: other texts wait until it ends. If several messages are pending, the
reply to one does not end the answer to another. All untrusted text passes `clean` on its way to
the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache, partial

from nanobot.channel.streaming import Answer, Piece
from nanobot.text import clean, format_size
from nanobot_cli.markdown import apply_styles, render, wrap_lines
from nanobot_cli.screen import Surface
from nanobot_cli.text import OutputTail, file_line, one_line, question_of, ways
from nanobot_cli.waiting import when
from nanobot_cli.wire import (
    AgentMessage,
    ChatEvent,
    Delta,
    Output,
    Reading,
    Reply,
    Taken,
    Tool,
    ToolDone,
)

_OUTPUT_LINES = 6
_MOST_QUEUED = 3
_INDENT = "  "
_STOPPED = "Stopped."  # the answer of `/stop`, which is left out
_HINT, _LEAST_HINT = 200, 20
_LONGEST_EARLIER = 1_500


class Transcript:
    """The output of a conversation's events."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._answer = Answer()
        self._turn_of = ""
        """The message whose turn sends progress."""
        self._ended: dict[str, Answer] = {}
        """Answers whose reply comes after the beginning of the next one, by message."""
        self._turns: dict[str, str] = {}
        """The turns of the messages without a reply, in order. Empty if none has taken it yet."""
        self._said: set[str] = set()
        self._commands: set[str] = set()
        self._last_turn = ""
        self._is_stopped = False
        self._tools: list[str] = []
        self._output: OutputTail | None = None
        self._queued: dict[str, str] = {}
        self._later: list[Callable[[], None]] = []
        self._render_live = lru_cache(maxsize=1)(render)

    def line(self, text: str, style: str = "dim") -> None:
        """Print a line that is not part of the reply."""
        lines = wrap_lines(clean(text), self._surface.width)
        self._surface.print(apply_styles("\n".join(lines), style))

    def note_sent(self, message_id: str, text: str) -> None:
        """Record a sent message."""
        self._turns[message_id] = ""
        if text.startswith("/"):
            self._commands.add(message_id)

    def expects(self, message_id: str) -> bool:
        """Return True if a message has no reply yet."""
        return message_id in self._turns

    def queue(self, message_id: str, text: str) -> None:
        """Show a message as queued until its turn takes it. A dumb terminal has it already."""
        self._surface.end_typed_line()
        if self._surface.moves:
            self._queued[message_id] = text
            self._surface.redraw()

    def note(self, text: str) -> None:
        """Print a notice."""
        self._print_after_answer(partial(self.line, text, "yellow"))

    def progress(self, event: ChatEvent) -> None:
        """Show progress of a turn."""
        if not isinstance(event, Taken | Reading):
            self._switch_to(event.id)
        match event:
            case Taken():
                self._turns[event.id] = event.turn
                self._place_taken()
            case Delta():
                self._take_text(event)
            case Tool():
                self._end_text()  # other tools may still run
                self._tools.append(event.hint)
                if not self._surface.moves:
                    self.line(f"· {one_line(event.hint, _HINT)}")
            case ToolDone():
                self._end_tool(event)
            case Output():
                self._output = self._output or OutputTail()
                self._output.feed(event.text)
        self._surface.redraw()

    def _switch_to(self, message_id: str) -> None:
        """End the answer of another turn, whose reply is late."""
        if self._turn_of not in ("", message_id):
            answer = self._answer
            self._end_answer()
            self._ended[self._turn_of] = answer
            self._place_taken(self._turns.get(message_id, ""))
        self._turn_of = message_id

    def _place_taken(self, turn: str = "") -> None:
        """Print the queued messages of a turn, or of that of the oldest message."""
        turn = turn or next(iter(self._turns.values()), "")
        for message_id, taken_by in self._turns.items():
            if turn and taken_by == turn and message_id in self._queued:
                self._end_answer()
                self._place(message_id)

    def _take_text(self, event: Delta) -> None:
        """Add to the answer, and print its complete blocks."""
        self._end_tools()
        if event.restart:
            if self._answer.has_taken:
                self.line("(the answer starts again)")
            self._answer = Answer()
        self._answer.add(event.text)
        if not self._is_repetition(self._answer.text):
            self._print_pieces(self._answer.take_blocks())

    def _is_repetition(self, text: str) -> bool:
        """Return True if `text` repeats a message of this turn so far."""
        return any(said.startswith(text.strip()) for said in self._said)

    def interrupt(self) -> None:
        """Handle the loss of a connection: the turn is continued or repeated."""
        self._turns = dict.fromkeys(self._turns, "")
        if self._answer.is_open:
            self._end_answer()
            self.line("(connection lost, the answer starts again)")

    def print_message(self, said: AgentMessage, now: datetime) -> None:
        """Print a message of the agent before its reply, with its files and choices. Messages from
        the person's absence have their time. Questions from then are answered by their command,
        because they may be closed. A question interrupts an answer."""
        if not said.at:
            self._said.add(said.text.strip())
        if question_of(said) is not None:
            self.keep()
            self._print_message(said, now)
        else:
            self._print_after_answer(partial(self._print_message, said, now))

    def _print_message(self, said: AgentMessage, now: datetime) -> None:
        self._end_tools()
        if not self._turn_of:
            self._surface.leave_gap()
        if said.chat:
            self.line("In another conversation:")
        if said.at:
            self.line(when(said.at, now))
        if said.text.strip():
            self._surface.print(render(clean(said.text), self._surface.width))
        for file in said.files:
            self._surface.print(apply_styles(file_line(file), "cyan"))
        if (question := question_of(said)) is None:
            for way in ways(said.choices):
                self.line(way, "cyan")
        elif not self._surface.moves:
            self.line(question.keys, "cyan")

    def print_earlier(self, messages: Sequence[tuple[str, str]]) -> None:
        """Print earlier messages of a conversation: the role and the text of each."""
        for role, content in messages:
            text, rest = content[:_LONGEST_EARLIER], content[_LONGEST_EARLIER:]
            text = clean(text) + ("…" if rest else "")
            if role == "user" and self._surface.moves:
                self._surface.print_words(text)
            else:
                self._surface.leave_gap()
                own = render(text, self._surface.width)
                self._surface.print(f"> {text}" if role == "user" else own)
        self._surface.leave_gap()

    def print_error(self, error: str, hint: str, message_id: str = "") -> None:
        """Print that the gateway rejected a message, or went away."""
        self._turns.pop(message_id, None)
        self.keep()
        self._place(message_id)
        self.line(f"{error}\n{hint}".strip(), "red")

    def reply(self, reply: Reply) -> None:
        """Print a reply, or the rest of it if its beginning was printed. A turn that answers
        several messages prints one."""
        self._turns.pop(reply.id, None)
        if reply.id == self._turn_of:
            self._print_reply(reply, self._answer)
            self._answer, self._turn_of = Answer(), ""
            self._print_later()
        else:
            answer = self._ended.pop(reply.id, Answer())
            self._print_after_answer(partial(self._print_reply, reply, answer))
        self._place_taken()

    def _print_reply(self, reply: Reply, answer: Answer) -> None:
        self._place(reply.id)
        is_command = reply.id in self._commands
        self._commands.discard(reply.id)
        if reply.turn and reply.turn == self._last_turn:
            self._print_pieces(answer.take_rest())
            return
        self._last_turn = reply.turn
        is_known = is_command and self._is_stopped and reply.text == _STOPPED
        self._is_stopped = reply.outcome == "stopped"
        self._end_tools()
        if not is_known:
            self._complete(answer, reply.text)
        if self._is_stopped:
            self.line("stopped")

    def _complete(self, answer: Answer, text: str) -> None:
        """Print the rest of an answer, or all of a `text` that is not the streamed one."""
        if text.strip():
            pieces = answer.complete(text)
            if pieces is None:
                self.line("(the final answer is different)")
                pieces = [Piece(clean(text), follows=False)]
            self._print_pieces(pieces)
        elif not self._is_repetition(answer.text):
            self._print_pieces(answer.take_rest())

    def rest(self) -> None:
        """Finish: no message is pending any more."""
        self._end_answer()
        for message_id in tuple(self._queued):
            self._place(message_id)
        self._said.clear()
        self._ended.clear()
        self._turns.clear()
        self._turn_of = ""
        self._surface.redraw()

    def keep(self) -> None:
        """Make the live part permanent, except the queue."""
        self._end_tools()
        self._print_pieces(self._answer.take_rest())

    def _end_answer(self) -> None:
        self._end_tools()
        self._end_text()

    def _end_text(self) -> None:
        """Print the rest of the answer, then the texts that waited for its end."""
        self._print_pieces(self._answer.take_rest())
        self._answer = Answer()
        self._print_later()

    def _print_after_answer(self, print_text: Callable[[], None]) -> None:
        if self._answer.is_open and self._surface.moves:
            self._later.append(print_text)
        else:
            print_text()

    def _print_later(self) -> None:
        later, self._later = self._later, []
        for print_text in later:
            print_text()

    def _print_pieces(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.follows:
                self._surface.leave_gap()
            self._surface.print(render(piece.source, self._surface.width))

    def _place(self, message_id: str) -> None:
        """Print a queued message."""
        if (text := self._queued.pop(message_id, None)) is not None:
            self._surface.print_words(text)

    def _end_tool(self, done: ToolDone) -> None:
        """Print the line of a tool with the size of its result, in place of its output."""
        if done.hint in self._tools:
            self._tools.remove(done.hint)
            if self._surface.moves and done.id not in self._commands:  # its reply has the output
                result = f" — {'failed, ' if done.failed else ''}{format_size(done.size)}"
                room = max(_LEAST_HINT, self._surface.width - len(result) - 2)
                self.line(f"· {one_line(done.hint, room)}{result}")
        if not self._tools:
            self._output = None

    def _end_tools(self) -> None:
        """Print the lines of tools whose result is unknown."""
        hints, self._tools, self._output = self._tools, [], None
        for hint in hints if self._surface.moves else ():
            self.line(f"· {one_line(hint, _HINT)}")

    def live_lines(self, rows: int, width: int) -> list[str]:
        """Return the last block of the answer and the tools' output, with styles: at most `rows`
        lines."""
        room = max(1, width - len(_INDENT) - 1)
        output = self._output.lines(_OUTPUT_LINES, room) if self._output else []
        output = [apply_styles(_INDENT + line, "dim") for line in output]
        rows -= len(output)
        is_repetition = self._is_repetition(self._answer.text)
        source = "" if is_repetition else self._answer.live(max(1, rows) * width)
        lines = self._render_live(source, width).split("\n") if source else []
        gap = [""] if lines and self._answer.has_taken else []
        shown = [*gap, *map(self._surface.paint, lines)]
        return [*shown[max(0, len(shown) - rows) :], *output]

    def queue_lines(self, width: int) -> list[str]:
        """Return a line for each of the first queued messages, and the number of the others."""
        texts = [*self._queued.values()]
        more = [f"+{len(texts) - _MOST_QUEUED}"] if len(texts) > _MOST_QUEUED else []
        return [*(one_line(f"queued: {text}", width - 1) for text in texts[:_MOST_QUEUED]), *more]
