"""Whose words: "my dog" as it is stored ("User's dog") and as it is said back ("Your dog").

Only pronouns and the verbs that follow them change; every other word stays as the person wrote it.
"""

from __future__ import annotations

import re

from nanobot.providers.offline import lexicon
from nanobot.providers.offline.words import is_chinese

_UNCHANGED = frozenset((lexicon.PAST + lexicon.MODAL).split())
_HABITS = frozenset(lexicon.HABITS.split())
_ADVERB = r"(?:\w{2,12}ly|always|never|often|also|still|just|now|sometimes|no longer)"
_FIRST = re.compile(
    rf"\b(?P<pronoun>(?:i|we)(?:'(?P<short>m|ve|ll|d|re))?)\b(?:(?P<adverb>(?:\s+{_ADVERB})?)"
    r"\s+(?P<verb>[a-z]+(?:'t)?)\b)?|\b(?P<other>my|mine|me|myself|our|ours|us|your|you)\b",
    re.IGNORECASE,
)
_THIRD = re.compile(
    r"\b(?:the\s+)?user\b(?!\.)(?:(?P<whose>'s)|"
    rf"(?P<adverb>(?:\s+\(with others\))?(?:\s+{_ADVERB})?)"
    r"\s+(?P<verb>[a-z]+(?:'t)?)\b)?",
    re.IGNORECASE,
)
_CALL_ME = re.compile(r"^(?:you can |please )?call me ", re.IGNORECASE)
_JOINED_VERB = re.compile(r"\b(and|but|or)\s+([a-z]+)\b")
_FULL = {"m": "is", "re": "is", "ve": "has", "ll": "will", "d": "would"}
_SAID_BACK = {
    "my": "your", "mine": "yours", "me": "you", "myself": "yourself", "our": "your",
    "ours": "yours", "us": "you", "your": "my", "you": "me",
}  # fmt: skip
_THEIRS = {"their": "your", "theirs": "yours", "them": "you", "themselves": "yourself"}
_BECOMES = {"am": "is", "are": "is", "were": "was", "have": "has", "do": "does", "go": "goes"}
_BECOMES |= {"don't": "doesn't", "haven't": "hasn't", "aren't": "isn't", "weren't": "wasn't"}
_RETURNS = {"is": "are", "was": "were", "has": "have", "does": "do", "goes": "go"}
_RETURNS |= {"doesn't": "don't", "hasn't": "haven't", "isn't": "aren't", "wasn't": "weren't"}
_NOT_PAST = frozenset(
    [
        "need",
        "feed",
        "speed",
        "breed",
        "heed",
        "bleed",
        "succeed",
        "proceed",
        "exceed",
        "weed",
        "seed",
    ]
)


def third_person(statement: str) -> str:
    """A statement in the first person, as a line of a memory about that person."""
    if is_chinese(statement) or (not statement.isascii() and "我" in statement):
        return _capital(statement.replace("我们", "用户等人").replace("咱们", "用户等人")
                        .replace("你", "nanobot").replace("我", "用户"))  # fmt: skip
    statement = statement.replace("’", "'")
    statement = _CALL_ME.sub("I want to be called ", statement)
    about_self = re.match(r"i\b", statement, re.IGNORECASE) is not None

    def swap(match: re.Match[str]) -> str:
        if match["other"]:
            return _stored_pronoun(match["other"].lower(), match.start() == 0, about_self)
        return _stored_subject(match)

    text = _FIRST.sub(swap, statement)
    if about_self:
        text = _JOINED_VERB.sub(
            lambda match: f"{match[1]} {inflected(match[2]) if match[2] in _HABITS else match[2]}",
            text,
        )
    return _capital(text)


def _stored_pronoun(word: str, first: bool, about_self: bool) -> str:
    if word in ("my", "our"):
        return "User's" if first else "their" if about_self else "the user's"
    if word in ("you", "your"):
        return "nanobot" if word == "you" else "nanobot's"
    return {"myself": "themselves", "mine": "theirs", "ours": "theirs"}.get(word, "the user")


def _stored_subject(match: re.Match[str]) -> str:
    together = match["pronoun"].lower().startswith("we")
    subject = "the user (with others)" if together else "the user"
    adverb, verb = match["adverb"] or "", match["verb"] or ""
    if match["short"]:
        follows = f"{adverb} {verb}" if verb else ""
        return f"{subject} {_FULL[match['short'].lower()]}{follows}"
    return f"{subject}{adverb} {inflected(verb)}" if verb else subject


def inflected(verb: str) -> str:
    """The verb after "the user": "live" becomes "lives"; past forms and "can" stay."""
    low = verb.lower()
    if low in _BECOMES:
        return _BECOMES[low]
    if low in _UNCHANGED or (low.endswith("ed") and low not in _NOT_PAST):
        return verb
    if low.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    if low.endswith("y") and low[-2:-1] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def base(verb: str) -> str:
    """The verb after "you": the way back from `inflected`."""
    low = verb.lower()
    if low in _RETURNS:
        return _RETURNS[low]
    if low in _UNCHANGED or not low.endswith("s") or low.endswith(("ss", "us")):
        return verb
    if low.endswith("ies") and len(low) > 4:
        return verb[:-3] + "y"
    if low.endswith(("shes", "ches", "xes", "zes", "sses", "oes")):
        return verb[:-2]
    return verb[:-1]


def second_person(statement: str) -> str:
    """A stored fact or the person's own statement, said back to them as a sentence."""
    text = statement.strip()
    if is_chinese(text) or "用户" in text or "我" in text:
        for old, new in (("用户等人", "你们"), ("用户", "你"), ("我们", "你们"), ("咱们", "你们"),
                         ("我", "你")):  # fmt: skip
            text = text.replace(old, new)
        return _sentence(text, "。")
    text = text.replace("’", "'")
    text = _from_third(text) if _THIRD.search(text) else _from_first(text)
    return _sentence(_capital(text))


def _from_third(text: str) -> str:
    def swap(match: re.Match[str]) -> str:
        if match["whose"]:
            return "your"
        if not match["verb"]:
            return "you"
        return f"you{match['adverb'] or ''} {base(match['verb'])}"

    about_self = _THIRD.match(text)
    text = _THIRD.sub(swap, text)
    if about_self and not about_self["whose"]:
        text = re.sub(r"\b(their|theirs|them|themselves)\b", lambda m: _THEIRS[m[1]], text)
        text = _JOINED_VERB.sub(
            lambda m: f"{m[1]} {base(m[2]) if base(m[2]) in _HABITS else m[2]}", text
        )
    return text


def _from_first(text: str) -> str:
    def swap(match: re.Match[str]) -> str:
        if match["other"]:
            return _SAID_BACK[match["other"].lower()]
        follows = f"{match['adverb'] or ''} {match['verb']}" if match["verb"] else ""
        short = {"m": " are", "re": " are", "ve": " have", "ll": " will", "d": " would"}
        if match["short"]:
            return f"you{short[match['short'].lower()]}{follows}"
        follows = re.sub(r" am$", " are", follows, flags=re.IGNORECASE)
        return "you" + re.sub(r" was$", " were", follows, flags=re.IGNORECASE)

    return _FIRST.sub(swap, text)


def _sentence(text: str, end: str = ".") -> str:
    text = text.rstrip("。. ")
    return text if text.endswith(("!", "！", "?", "？")) else text + end


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
