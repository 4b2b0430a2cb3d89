"""What is neither words nor a file, as a note of one line: a place, a contact, a poll, …"""

from __future__ import annotations

from collections.abc import Callable

from telegram import Checklist, ChecklistTask, Location, Message, Poll

from nanobot.channel.text import one_line
from nanobot_telegram.inbound.files import Content, file_of
from nanobot_telegram.inbound.plain import note

_SILENT = frozenset({"community_chat_added", "community_chat_removed"})
"""Service messages that the library does not know yet; they say nothing to us."""


def note_of(content: Content) -> str:
    """The note that stands for a content that the agent gets no other way; empty for none."""
    return next(filter(None, (tell(content) for tell in _TELLERS)), "")


def label_of(content: Content) -> str:
    """What kind of content a quoted message has, in brackets; empty where it has only words."""
    file = file_of(content)
    label = note_of(content) or (f"{file.kind} {file.name}".rstrip() if file else "")
    return label and f"[{label}]"


def unknown_in(message: Message) -> str:
    """A note about content that this program and its library are too old for; empty for none."""
    for name, value in message.api_kwargs.items():
        if isinstance(value, dict | list) and name not in _SILENT:
            return note("unsupported message", name.replace("_", " "))
    return ""


def place(location: Location) -> str:
    """Latitude and longitude in degrees, to about a decimetre."""
    numbers = (f"{degrees:.6f}" for degrees in (location.latitude, location.longitude))
    return ", ".join(number.rstrip("0").rstrip(".") for number in numbers)


def _sticker(content: Content) -> str:
    if content.sticker is None:
        return ""
    return f"sticker {one_line(content.sticker.emoji or '')}".rstrip()


def _place(content: Content) -> str:
    venue, location = content.venue, content.location
    if venue is not None:
        return note("venue", venue.title, venue.address, place(venue.location))
    if location is None:
        return ""
    # As a dictionary: the library warns of its own plans where the attribute is read.
    moves = location.to_dict().get("live_period")
    return note("live location" if moves else "location", place(location))


def _contact(content: Content) -> str:
    contact = content.contact
    if contact is None:
        return ""
    name = " ".join(filter(None, (contact.first_name, contact.last_name)))
    return note("contact", name, contact.phone_number)


def _poll(content: Content) -> str:
    return "" if content.poll is None else note("poll", _options(content.poll))


def _options(poll: Poll) -> str:
    return f"{poll.question} ({' / '.join(option.text for option in poll.options)})"


def _checklist(content: Content) -> str:
    return "" if content.checklist is None else note("checklist", _tasks(content.checklist))


def _tasks(checklist: Checklist) -> str:
    return f"{checklist.title} ({'; '.join(_task(task) for task in checklist.tasks)})"


def _task(task: ChecklistTask) -> str:
    done = task.completed_by_user or task.completed_by_chat
    return f"{'done' if done else 'to do'}: {task.text}"


def _game(content: Content) -> str:
    if content.dice is not None:
        return note("dice", f"{content.dice.emoji} {content.dice.value}")
    return "" if content.game is None else note("game", content.game.title)


def _trade(content: Content) -> str:
    if content.invoice is not None:
        return note("invoice", content.invoice.title)
    if content.paid_media is not None:
        return note("paid media", f"{content.paid_media.star_count} stars")
    if content.giveaway is not None:
        return note("giveaway", content.giveaway.prize_description)
    return "" if content.giveaway_winners is None else note("giveaway winners")


def _story(content: Content) -> str:
    return "" if content.story is None else note("story")


_TELLERS: tuple[Callable[[Content], str], ...] = (
    _sticker,
    _place,
    _contact,
    _poll,
    _checklist,
    _game,
    _trade,
    _story,
)
