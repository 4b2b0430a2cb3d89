"""From a message to wishes: what does the person want?

Looked at from the outside in: a request that takes the whole message (a note, a file's text), then
sentence by sentence. A sentence is a command, a wish to remember, a question, a plain statement
about the person, a courtesy, or something else.
"""

from __future__ import annotations

import re

from nanobot.providers.offline import commands, patterns
from nanobot.providers.offline.facts import SECRET
from nanobot.providers.offline.intents import (
    Ask,
    Courtesy,
    Forget,
    Help,
    Intent,
    ReadFile,
    Recite,
    Remember,
    RememberThat,
    ReplaceText,
    SendFile,
    Statement,
    TakeNote,
    TellSaid,
    TellTime,
    Unclear,
    Wish,
    WriteFile,
)
from nanobot.providers.offline.requests import request
from nanobot.providers.offline.statements import (
    chinese_clauses,
    has_verb,
    is_personal,
    is_statement,
)
from nanobot.providers.offline.words import fold, is_chinese, sentences

_WHOLE: tuple[tuple[re.Pattern[str], Intent], ...] = (
    (patterns.TIME, TellTime()),
    (patterns.HELP, Help()),
    (patterns.NOTES, Recite(notes=True)),
    (patterns.RECITE, Recite()),
    (patterns.THAT, RememberThat()),
)

_ON_A_FILE = (WriteFile, ReadFile, ReplaceText, SendFile)

MOST_WISHES = 12
"""Per message; a turn must end within the agent's limit of steps."""


def understand(message: str) -> list[Wish]:
    """The wishes in a message, in order; at least one for a message that is not empty."""
    chinese = is_chinese(message)
    intents = _message(message.strip())[:MOST_WISHES]
    return [Wish(intent, chinese) for intent in intents]


def _message(text: str) -> list[Intent]:
    if not text:
        return []
    if steps := _steps(text):
        return steps
    asked = polite(text)
    if found := request(asked):
        return [found]
    if notes := _notes(text):
        return notes
    parts = _rejoined(sentences(text))
    alone = commands.command(polite(parts[0])) if parts else None
    whole = commands.open_command(asked) or (None if alone else commands.carrying_command(asked))
    if whole and not _is_memory_wish(asked):
        return [whole]
    return _sentences(parts)


def _notes(text: str) -> list[Intent]:
    """Several notes, each on a line or in a sentence of its own; each must say that it is one."""
    if len(text) > 4 * commands.SENTENCE:
        return []
    for parts in (text.splitlines(), sentences(text)):
        notes = [commands.open_command(polite(part)) for part in parts if part.strip()]
        if len(notes) > 1 and all(isinstance(note, TakeNote) for note in notes):
            return [note for note in notes if note]
    return []


def _is_memory_wish(text: str) -> bool:
    return patterns.REMEMBER.match(text) is not None and not text.lower().startswith("note:")


def _steps(text: str) -> list[Intent]:
    """ "Write … to a.txt, then read it": several commands in one sentence, each must be one."""
    parts = patterns.THEN.split(text) if len(text) <= 4 * commands.SENTENCE else [text]
    if not 2 <= len(parts) <= 6:
        return []
    steps: list[Intent] = []
    path = ""
    for part in parts:
        wish = polite(part.strip())
        wish = patterns.IT.sub(lambda _, path=path: path, wish) if path else wish  # type: ignore[misc]
        intent = commands.command(wish) or commands.open_command(wish)
        if intent is None:
            return []
        path = intent.path if isinstance(intent, _ON_A_FILE) else path
        steps.append(intent)
    return steps


def polite(text: str) -> str:
    """`text` without words of address and politeness before it."""
    text = text.strip().replace("’", "'")
    for _ in range(6):
        match = patterns.POLITE.match(text)
        if match is None or match.end() >= len(text):
            break
        text = text[match.end() :].lstrip()
    return text


def _sentences(parts: list[str]) -> list[Intent]:
    found: list[Intent] = []
    keep_all = False
    topic = ""
    for said in parts[: 4 * MOST_WISHES]:
        part = said
        if topic and len(part) < commands.SENTENCE and (new := patterns.CORRECTED.match(part)):
            part = f"{topic} {new['value']}"
        if match := patterns.TOPIC.match(part[: commands.SENTENCE]):
            topic = match["key"]
        for intent in _sentence(part):
            if isinstance(intent, RememberThat):
                keep_all = keep_all or part.rstrip().endswith((":", "："))
            if isinstance(intent, Remember) and intent.asked and _opens_a_list(part):
                keep_all = True
            if keep_all and isinstance(intent, Unclear) and clean(part):
                found.append(Remember(clean(part)))
                continue
            found.append(intent)
    if keep_all or any(isinstance(intent, RememberThat) for intent in found):
        found = _keep_statements(found)
    return _without_small_talk(found)


def _rejoined(parts: list[str]) -> list[str]:
    """What stands after a semicolon and says nothing by itself belongs to what is before it."""
    joined: list[str] = []
    for part in parts[: 4 * MOST_WISHES]:
        if joined and joined[-1].endswith((";", "；")) and _is_fragment(part):
            joined[-1] += part if joined[-1].endswith("；") else f" {part}"
        else:
            joined.append(part)
    return joined


def _is_fragment(part: str) -> bool:
    bare = polite(part)
    return not (has_verb(bare) or is_question(bare) or _memory_wish(part, bare)) and not (
        commands.command(bare) or commands.open_command(bare)
    )


def _opens_a_list(part: str) -> bool:
    match = patterns.REMEMBER.match(polite(part))
    return match is not None and match[0].rstrip().endswith(":")


def _keep_statements(found: list[Intent]) -> list[Intent]:
    """ "My dog is Rex. Remember that.": what was said in the same message is what to remember."""
    kept: list[Intent] = [
        Remember(intent.text) if isinstance(intent, Statement) else intent for intent in found
    ]
    if any(isinstance(intent, Remember) for intent in kept):
        kept = [intent for intent in kept if not isinstance(intent, RememberThat)]
    return kept


def _without_small_talk(found: list[Intent]) -> list[Intent]:
    main: list[Intent] = [i for i in found if not isinstance(i, Courtesy | Unclear | Statement)]
    if main:
        return main
    statements: list[Intent] = [i for i in found if isinstance(i, Statement)]
    return (statements or [i for i in found if isinstance(i, Courtesy)] or found)[:1]


def _sentence(raw: str) -> list[Intent]:
    text = raw.strip()
    bare = polite(text)
    for candidate in dict.fromkeys((text, bare)):
        if intent := _whole_sentence(candidate):
            return [intent]
    if found := request(bare):
        return [found]
    intent = commands.open_command(bare)
    if intent is not None and not _is_memory_wish(bare):
        return [intent]
    if several := commands.reads(bare):
        return several
    return _memory_wish(text, bare) or _plain(text, bare)


def _whole_sentence(text: str) -> Intent | None:
    """Sentences that are one thing from end to end."""
    if len(text) > commands.SENTENCE:
        return commands.command(text)
    for kind, pattern in patterns.COURTESY.items():
        if pattern.match(text):
            return Courtesy(kind)
    for pattern, intent in _WHOLE:
        if pattern.match(text) and not (pattern is patterns.THAT and text.endswith("?")):
            return intent
    if match := patterns.FORGET.match(text):
        return Forget((match["about"] or match["zh"]).strip())
    for which, pattern in patterns.SAID.items():
        if pattern.match(text):
            return TellSaid(which)
    return commands.command(text)


def _memory_wish(text: str, bare: str) -> list[Intent]:
    """ "Remember that …", "…, keep that in mind", and the same in Chinese."""
    if _asks_for_memory(text, bare):
        return [Ask(text)]
    if tail := (patterns.TAIL.search(bare[-200:]) or patterns.TAIL_ZH.search(fold(bare[-60:]))):
        head = bare[: len(bare) - len(tail[0])].strip()
        if head and not is_question(head):
            opened = patterns.REMEMBER.match(head)
            return _facts(head[opened.end() :] if opened else head)
        if not head:
            return [RememberThat()]
    match = patterns.REMEMBER.match(bare) or patterns.REMEMBER_ZH.match(fold(bare))
    if match is None:
        return []
    rest = bare[match.end() :].strip()
    if not rest:
        return [RememberThat()]
    if rest.lower().startswith("to ") and match.re is patterns.REMEMBER:
        rest = f"To do: {rest[3:]}"
    return _facts(rest)


def _asks_for_memory(text: str, bare: str) -> bool:
    low = text.lower()
    if is_chinese(text):
        return patterns.QUESTION_ZH.search(text) is not None and not re.search(
            r"好吗[？?]?$|可以吗[？?]?$", text
        )
    if re.match(r"(?:do|did|don't) you (?:still )?(?:remember|recall|know)\b", low):
        return True
    match = patterns.REMEMBER.match(bare)
    if match is None:
        return False
    rest = bare[match.end() :]
    return (patterns.WH.match(rest) is not None and ":" not in rest) or (
        rest.endswith("?") and not is_statement(rest.rstrip("? "))
    )


def _facts(rest: str) -> list[Intent]:
    return [Remember(part) for part in _split_facts(clean(rest))]


def clean(statement: str) -> str:
    """A statement without what only carries it."""
    statement = patterns.MY_NAME.sub(r"\1 is ", polite(statement.strip()))
    statement = patterns.I_AM_NAME.sub(r"my name is \1", statement)
    statement = re.sub(
        r"^(?:that|this)\s+(?=(?:my|i|i'm|the|we|our)\b)", "", statement, flags=re.IGNORECASE
    )
    ends = " \t\n.?;,，。；？" if SECRET.search(statement) else " \t\n.!?;,，。！；？"
    statement = statement.rstrip(ends)
    return (
        re.sub(r"(?<=\s)now\s+(?=\S)|\s+now$", "", statement)
        if patterns.CHANGED.search(statement)
        else statement
    )


def _split_facts(statement: str) -> list[str]:
    """ "My name is Ana and I live in Porto": two facts, if each part is one."""
    if len(clauses := chinese_clauses(statement)) > 1:
        return clauses
    if len(statement) <= 500 and (match := patterns.GOES_ON.match(statement)):
        verb = match["verb"].strip().replace("'s", "is")
        return [f"{match['key']} {match['first']}", f"{match['key']} {verb} {match['then']}"]
    parts = patterns.NEXT_FACT.split(statement) if len(statement) <= 2_000 else [statement]
    if len(parts) > 1 and all(map(has_verb, parts)):
        return [clean(part) for part in parts]
    return [statement] if statement else []


def is_question(text: str) -> bool:
    """Whether a sentence asks."""
    text = text.strip()
    if is_chinese(text):
        return patterns.QUESTION_ZH.search(fold(text)) is not None
    return text.endswith(("?", "？")) or patterns.QUESTION.match(polite(text)) is not None


def _plain(text: str, bare: str) -> list[Intent]:
    if is_question(text) or (patterns.QUESTION.match(bare) and not is_chinese(bare)):
        asks_a_favour = patterns.FAVOUR.match(text) and not is_question(bare.rstrip("? "))
        return [Unclear() if asks_a_favour else Ask(text)]
    facts = _split_facts(clean(bare))
    if any(map(is_personal, facts)):
        return [Remember(fact, asked=False) for fact in facts]
    return [Statement(clean(bare))] if is_statement(clean(bare)) else [Unclear()]


__all__ = ["TakeNote", "clean", "is_question", "polite", "understand"]
