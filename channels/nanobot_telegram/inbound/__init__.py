"""What an update of the Bot API says, as values of the core: pure, and the only reader of updates.

`understand` never asks the network. Each kind of message is understood (words and files), told in
one note beside the words, or knowingly ignored; one that nobody knew when this was written is told
in a note too.
"""

from nanobot_telegram.inbound.albums import Albums
from nanobot_telegram.inbound.updates import from_press, understand, unreadable
from nanobot_telegram.inbound.values import Me, Press, Understood

__all__ = ["Albums", "Me", "Press", "Understood", "from_press", "understand", "unreadable"]
