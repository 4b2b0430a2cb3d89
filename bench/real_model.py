"""nanobot with a real small model on a real llama.cpp server, compared with the model itself.

    python -m bench.real_model --server llama-server --weights FILE.gguf [--window 4096]
    python -m bench.real_model … --scenario 4 7     only these
    python -m bench.real_model … --chat 50          in their place, so many turns of small talk

nanobot is set up by `onboard` and runs as `nanobot gateway`. Sixteen scenarios are played with
greedy sampling. For each, the first request of nanobot is also sent to the server directly, and the
raw answer is judged: it is right if it contains the right call, in any form, or the right text. If
it does not, only the person's words are sent, with the same instructions and tools, because
nanobot's surrounding text may be at fault. So nanobot is judged by the model's abilities.

Transcripts, requests and raw answers are stored in the folder of --keep. The exit code is 1 if
nanobot gets less than 80 % of what the model gets, if markup was shown, if a conversation was dead,
or if a running server "cannot be reached"."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha1
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

from bench.llama import Exchange, LlamaServer, Raw, Recorder
from bench.real_nanobot import DEAD, FORBIDDEN, MARKUP, ChatTurn, RealNanobot, transcript

SHARE, SUMMARIES = 0.8, 5
ZONE = "Europe/Berlin"
TEA = "genmaicha"
_CLOSING = "Thank you. Please answer with one word: ready."
_CHAT = ("Hi!", "How are you?", "Tell me a short fact.", "Why is that?", "And what about cats?")

Right = Callable[[RealNanobot], tuple[bool, Exchange | None]]
"""Plays a scenario, and returns whether nanobot was right and the request to send directly."""


@dataclass(frozen=True)
class Scenario:
    """`direct` judges the raw answer of the server."""

    title: str
    right: Right
    direct: Callable[[Raw], bool]


def _ask(nanobot: RealNanobot, text: str) -> tuple[ChatTurn, Exchange | None]:
    """Ask in a new conversation, and then once more, which must always be answered."""
    talk = nanobot.talk()
    said = nanobot.say(talk, text)
    last = nanobot.say(talk, _CLOSING)
    if last.outcome != "done" or not last.reply.strip():
        nanobot.notes.append(DEAD)
    return said, nanobot.find_request(text)


def _expect_answer(text: str, *words: str) -> Right:
    """Check that the answer has one of these words."""

    def right(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
        said, request = _ask(nanobot, text)
        return said.outcome == "done" and _tells(said.reply, *words), request

    return right


def _has(text: str, *words: str) -> bool:
    return any(word.lower() in text.lower() for word in words)


def _tells(text: str, *words: str) -> bool:
    """Check whether an answer for people has one of these words."""
    return _has(text, *words) and not MARKUP.search(text)


def _is_greeting(text: str) -> bool:
    return bool(text.strip()) and not MARKUP.search(text)


def _greeting(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    said, request = _ask(nanobot, "Hello! How are you?")
    return said.outcome == "done" and _is_greeting(said.reply), request


def _fact_told(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    _, request = _ask(nanobot, f"Remember this for good: my favourite tea is {TEA}.")
    return TEA in nanobot.facts(), request


def _fact_known(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    if TEA not in nanobot.facts():  # its use is tested, not how it was stored
        with (nanobot.workspace / "USER.md").open("a") as file:
            file.write(f"- Favourite tea: {TEA}\n")
    return _expect_answer("What is my favourite tea?", TEA)(nanobot)


def _file_written(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    _, request = _ask(nanobot, "Write a file hello.txt with this content: good morning, moon")
    found = nanobot.workspace.rglob("hello.txt")
    return any("good morning, moon" in path.read_text() for path in found), request


def _file_read(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    (nanobot.workspace / "garden.txt").write_text("The code of the garden gate is heliotrope-61.\n")
    return _expect_answer("Read the file garden.txt and tell me the code.", "heliotrope-61")(
        nanobot
    )


def _folder_listed(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    folder = nanobot.workspace / "trips"
    folder.mkdir(exist_ok=True)
    for name in ("oslo.md", "palermo.md"):
        (folder / name).write_text("nothing yet\n")
    said, request = _ask(nanobot, "Which files are in the folder trips? List them.")
    return "oslo.md" in said.reply and "palermo.md" in said.reply, request


def _command_run(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    (nanobot.workspace / "sum.txt").write_text("a file to be summed\n")
    digest = sha1((nanobot.workspace / "sum.txt").read_bytes()).hexdigest()
    return _expect_answer("Run the command `sha1sum sum.txt` and show me its output.", digest)(
        nanobot
    )


def _reminder_set(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    _, request = _ask(nanobot, "Remind me in 20 minutes to water the plants.")
    jobs = (nanobot.run("cron", "list") or {}).get("jobs", ())
    return any("plants" in json.dumps(job) for job in jobs), request


def _memory_searched(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    talk = nanobot.talk()
    nanobot.say(talk, "By the way, our boat lies at berth 417 in the marina.")
    nanobot.close_conversation(talk)
    text = "Use search_memory to find out at which berth our boat lies."
    said, request = _ask(nanobot, text)
    return any("search_memory" in tool for tool in said.tools) and "417" in said.reply, request


def _dates() -> Sequence[str]:
    now = datetime.now(ZoneInfo(ZONE))
    return (f"{now:%Y-%m-%d}", f"{now:%B} {now.day}", f"{now.day} {now:%B}", f"{now:%d/%m/%Y}",
            f"{now:%m/%d/%Y}", f"{now.day}th of {now:%B}")  # fmt: skip


def _date_told(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    return _expect_answer("What is today's date?", *_dates())(nanobot)


_WHO = ("the lighthouse keeper", "Marta from the bakery", "the schoolmaster", "old Piet", "my aunt",
        "the ferryman", "a painter from the mainland", "the doctor", "our neighbour",
        "the postwoman", "the twins", "a bird watcher")  # fmt: skip
_DID = ("repaired", "sold", "forgot", "painted", "borrowed", "talked about", "carried home", "lost",
        "drew", "asked for", "cleaned", "counted", "hid", "wrote about")  # fmt: skip
_THING = ("the lamp of the lighthouse", "a sack of flour", "the nets", "three letters", "the bell",
          "the seals on the rocks", "a clock", "the ferry's anchor", "some honey",
          "the school's map", "a blue boat", "seven eggs", "the old piano")  # fmt: skip
_WHEN = ("before sunrise", "while it rained", "after the storm", "at low tide", "on the way home",
         "when the ferry was late", "by candlelight", "without a word", "for the second time",
         "as the fog came in", "during the feast", "with cold hands")  # fmt: skip


def _paste() -> str:
    """Return 2,000 words about life on an island."""
    chance, sentences, words = Random(7), list[str](), 0
    while words < 2000:
        who, did, thing, when = map(chance.choice, (_WHO, _DID, _THING, _WHEN))
        sentence = f"{when}, {who} {did} {thing}"
        sentences.append(sentence[0].upper() + sentence[1:])
        words += len(sentence.split())
    return ". ".join(sentences) + "."


def _paste_summarised(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    said, request = _ask(nanobot, f"{_paste()}\n\nSummarise the text above in two sentences.")
    return said.outcome == "done" and _is_summary(said.reply), request


_SUBJECTS = ("lighthouse", "ferry", "feast", "storm", "Marta", "boat", "events", "activities")


def _is_summary(text: str) -> bool:
    return _tells(text, *_SUBJECTS) and len(text.split()) < 200


def _stop(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    talk, question = nanobot.talk(), "What is the capital of France? One word."
    stopped = nanobot.say(talk, "Write a story of 600 words about a fox.", stop_after=40)
    if stopped.outcome != "stopped":
        nanobot.notes.append(f"/stop: {stopped.outcome}")
    next_one = nanobot.say(talk, question)
    if next_one.outcome != "done" or not next_one.reply.strip():
        nanobot.notes.append(DEAD)
    return stopped.outcome == "stopped" and "Paris" in next_one.reply, nanobot.find_request(
        question
    )


_STORIES = (
    "We booked the night train to Vienna for 12 May; Tom will bring the tickets.",
    "I sold the old bicycle to Mrs Okafor for 80 euros yesterday.",
    "The dentist moved my appointment to Friday at 15:30.",
    "My brother Karim starts his new job at the observatory in June.",
    "We will paint the kitchen green, and the paint is called Moss 12.",
)
_MEMORY, _DREAM = "You are a memory consolidation agent", "# Dream, phase 1"


def _summarise(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    kinds = list[str]()
    for story in _STORIES[:SUMMARIES]:
        talk = nanobot.talk()
        nanobot.say(talk, f"{story} Just say ok.")
        nanobot.close_conversation(talk)
        kinds += [str(entry["type"]) for entry in nanobot.history(talk.session)] or ["none"]
    nanobot.notes.append(f"history entries: {', '.join(kinds)}")
    return kinds.count("consolidation") >= SUMMARIES - 1, nanobot.find_instructed(_MEMORY)


def _dreamt(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    talk = nanobot.talk()
    nanobot.say(talk, f"I drink {TEA} every morning, it is my favourite tea. Just say ok.")
    nanobot.close_conversation(talk)
    if TEA in nanobot.facts():
        nanobot.notes.append("the fact was known before the Dream")
    done = nanobot.run("dream")
    nanobot.notes.append(f"dream: {json.dumps(done, ensure_ascii=False)[:300]}")
    return done is not None and TEA in nanobot.facts(), nanobot.find_instructed(_DREAM)


def _by_api_and_page(nanobot: RealNanobot) -> tuple[bool, Exchange | None]:
    text = "Hello! How are you?"
    both = (nanobot.by_api(text), nanobot.by_page(text))
    return all(
        one.outcome == "done" and _is_greeting(one.reply) for one in both
    ), nanobot.find_request(text)


_WRITES = ("write_file", "edit_file", "exec")
SCENARIOS: Sequence[Scenario] = (
    Scenario("a greeting", _greeting, lambda raw: _is_greeting(raw.text) and not raw.calls),
    Scenario("a fact is stored", _fact_told, lambda raw: raw.is_call(("update_memory",), TEA)),
    Scenario("the fact is used", _fact_known, lambda raw: _tells(raw.text, TEA)),
    Scenario("a file is written", _file_written,
             lambda raw: raw.is_call(_WRITES, "hello.txt", "good morning, moon")),
    Scenario("a file is read", _file_read,
             lambda raw: raw.is_call(("read_file", "exec", "grep"), "garden.txt")),
    Scenario("a folder is listed", _folder_listed,
             lambda raw: raw.is_call(("list_dir", "find_files", "exec"), "trips")),
    Scenario("a command is run", _command_run, lambda raw: raw.is_call(("exec",), "sha1sum")),
    Scenario("a reminder is set", _reminder_set, lambda raw: raw.is_call(("cron",), "plants")),
    Scenario("search_memory is used", _memory_searched,
             lambda raw: raw.is_call(("search_memory",), "boat")
             or raw.is_call(("search_memory",), "berth")),
    Scenario("today's date", _date_told, lambda raw: _tells(raw.text, *_dates())),
    Scenario("2,000 words summarised", _paste_summarised, lambda raw: _is_summary(raw.text)),
    Scenario("Chinese", _expect_answer("法国的首都是哪里？", "巴黎"),
             lambda raw: "巴黎" in raw.text),
    Scenario("a stop, and a question", _stop, lambda raw: "Paris" in raw.text),
    Scenario("conversations end in summaries", _summarise,
             lambda raw: _has(raw.text + str(raw.calls), "history_entry")),
    Scenario("Dream learns the fact", _dreamt, lambda raw: _has(raw.text, TEA)),
    Scenario("by the API and the page", _by_api_and_page,
             lambda raw: _is_greeting(raw.text) and not raw.calls),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """The result of a scenario. `direct` is None if there was no request that could be sent
    directly."""

    number: int
    title: str
    right: bool
    seconds: float
    tokens: tuple[int, int]
    direct: bool | None
    form: str
    flags: Sequence[str]

    def __str__(self) -> str:
        right, direct = (
            "–" if one is None else "yes" if one else "no" for one in (self.right, self.direct)
        )
        tokens = f"{self.tokens[0]:,}, {self.tokens[1]:,}"
        cells = (str(self.number), self.title, right, f"{self.seconds:.0f}", tokens, direct)
        return f"| {' | '.join((*cells, self.form, ', '.join(self.flags)))} |"


_HEAD = """| # | scenario | nanobot right | seconds | tokens in, out | direct right | form | seen |
|---|---|---|---|---|---|---|---|"""


def play(nanobot: RealNanobot, number: int, scenario: Scenario, kept: Path) -> Row:
    """Play a scenario, then ask the server directly."""
    nanobot.begin()
    began = time.monotonic()
    try:
        right, request = scenario.right(nanobot)
    except Exception as error:  # noqa: BLE001 - the other scenarios are played all the same
        right, request = False, None
        nanobot.notes.append(f"broke off: {error!r}")
    finally:
        _keep_exchanges(kept / f"{number:02}.requests", nanobot.exchanges())
    seconds = time.monotonic() - began
    nanobot.recorder.settle()
    raw, direct = None, None
    for body in nanobot.direct_requests(request) if request else ():
        raw = nanobot.server.complete(body)
        if direct := scenario.direct(raw):
            break
    flags = [*nanobot.flags(), *nanobot.notes]
    form = raw.form if raw else ""
    row = Row(number, scenario.title, right, seconds, nanobot.tokens(), direct, form, flags)
    (kept / f"{number:02}.md").write_text(f"{_HEAD}\n{row}\n\n{transcript(nanobot, raw)}")
    _keep_exchanges(kept / f"{number:02}.requests", nanobot.exchanges())
    return row


def chat(nanobot: RealNanobot, turns: int, kept: Path) -> list[Row]:
    """Make small talk in one conversation. Each message must be answered."""
    nanobot.begin()
    talk, began, flags = nanobot.talk(), time.monotonic(), list[str]()
    for number in range(turns):
        said = nanobot.say(talk, _CHAT[number % len(_CHAT)])
        if said.outcome != "done" or not said.reply.strip():
            flags.append(f"turn {number + 1}: {said.outcome} {said.reply[:80]!r}")
    (kept / "chat.md").write_text(transcript(nanobot, None))
    _keep_exchanges(kept / "chat.requests", nanobot.exchanges())
    flags += nanobot.flags()
    seconds = time.monotonic() - began
    return [Row(0, f"{turns} turns of chat", not flags, seconds, nanobot.tokens(), None, "", flags)]


def _keep_exchanges(folder: Path, exchanges: Sequence[Exchange]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(exchanges):
        (folder / f"{number:02}.json").write_text(json.dumps(one.request, ensure_ascii=False))
        first = f"{one.first - one.began:.1f}" if one.first else "never"
        ended = f"{one.ended - one.began:.1f}, {'whole' if one.whole else 'hung up'}"
        head = f"status {one.status}, first byte after {first} s, over after {ended}\n\n"
        (folder / f"{number:02}.answer").write_bytes(head.encode() + one.body)


def summary(rows: Sequence[Row]) -> tuple[str, bool]:
    """Return nanobot's share, and whether all is well."""
    ours, theirs = sum(row.right for row in rows), sum(row.direct is True for row in rows)
    bad = [f"{row.number}: {flag}" for row in rows for flag in row.flags if flag in FORBIDDEN]
    lost = [str(row.number) for row in rows if row.direct and not row.right]
    lines = [f"nanobot {ours}, the server directly {theirs}, of {len(rows)} scenarios."]
    lines += [f"Right directly and not by nanobot: {', '.join(lost)}."] if lost else []
    lines += [f"Seen, though it must not be: {'; '.join(bad)}."] if bad else []
    return "\n".join(lines), ours >= SHARE * theirs and not bad


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", type=Path, required=True, help="llama.cpp's llama-server")
    parser.add_argument("--weights", type=Path, required=True, help="a model as GGUF")
    parser.add_argument("--window", type=int, default=16384, help="tokens (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of the server")
    parser.add_argument("--scenario", type=int, nargs="+", help="only these", metavar="N")
    parser.add_argument("--chat", type=int, default=0, help="turns of small talk", metavar="N")
    parser.add_argument("--keep", type=Path, help="where transcripts go")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server and the gateway end too
    kept = options.keep or Path(tempfile.mkdtemp(prefix="real-model-"))
    kept.mkdir(parents=True, exist_ok=True)
    log, threads = kept / "llama-server.log", options.threads
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "home"
        server = stack.enter_context(
            LlamaServer(options.server, options.weights, options.window, threads, log)
        )
        recorder = stack.enter_context(Recorder(server.port))
        nanobot = stack.enter_context(RealNanobot(home, server, recorder, ZONE, kept))
        if options.chat:
            rows = chat(nanobot, options.chat, kept)
        else:
            wanted = options.scenario or range(1, len(SCENARIOS) + 1)
            rows = []
            for number in wanted:
                rows.append(play(nanobot, number, SCENARIOS[number - 1], kept))
                print(rows[-1], file=sys.stderr, flush=True)
    text, well = summary(rows)
    table = "\n".join((f"{server.model}, {options.window:,} tokens\n", _HEAD, *map(str, rows)))
    print(f"{table}\n\n{text}\nTranscripts: {kept}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
