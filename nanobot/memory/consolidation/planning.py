"""Which messages leave the prompt when room must be made: policy only, pure.

A conversation is a row of messages, each with a cost in tokens. What leaves is always its oldest
part, so a plan is one number: how many messages go. Two rules say where the row may be parted:

- A *joint* is a place where no call stands on one side and its result on the other: a model's API
  refuses either without the other.
- A *turn* begins at a joint in front of a user message that does not belong to the turn before it
  (a message that a person sent into a running turn does).

`pick_consolidation_boundary` takes the first turn at which enough tokens have left. Enough is what
was wanted, but at least `least` (a tenth of the budget): many small consolidations would cost a
call and a new prompt prefix each. Where no turn begins late enough, the newest turn is too large by
itself: what is before it goes first if that is enough to be worth a call, and otherwise the turn is
parted at a joint inside. Where there is no joint either, everything goes. So there is always
progress, and a caller that plans again after each step ends.

`pick_window_boundary` is the rule by count, which makes a large context window not mean "never".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from nanobot.messages import Message


def pick_consolidation_boundary(
    messages: Sequence[Message], costs: Sequence[int], wanted: int, least: int = 1
) -> int:
    """How many of the oldest messages go so that `wanted` tokens leave, and at least `least`.

    `costs` are tokens, one for each message. 0 only where there are no messages.
    """
    if not messages:
        return 0
    needed = max(wanted, least, 1)
    gone = [0, *accumulate(costs)]
    joints = joints_of(messages)
    turns = [index for index in joints if begins_turn(messages, index)]
    for index in turns:
        if gone[index] >= needed:
            return index
    if turns and gone[turns[-1]] >= max(least, 1):
        return turns[-1]
    return next((index for index in joints if gone[index] >= needed), len(messages))


def pick_window_boundary(messages: Sequence[Message], window: int, chunk: int) -> int:
    """How many of the oldest messages go once there are `window` of them: about `chunk`.

    The number is rounded down to a turn, or up where none begins that early. 0 where there are
    fewer than `window`, where `window` is 0 (no limit), and where there is but one turn.
    """
    if window <= 0 or len(messages) < window:
        return 0
    turns = [index for index in joints_of(messages) if begins_turn(messages, index)]
    early = [index for index in turns if index <= chunk]
    return early[-1] if early else next(iter(turns), 0)


def newest_turn(messages: Sequence[Message]) -> int:
    """Where the newest turn begins; 0 where there is but one."""
    turns = [index for index in joints_of(messages) if begins_turn(messages, index)]
    return turns[-1] if turns else 0


def split_range(messages: Sequence[Message], costs: Sequence[int], room: int) -> list[int]:
    """Where to part a range so that each piece costs at most `room` tokens: the end of each piece.

    Pieces end at a turn where one ends in their second half, else at a joint. A group of a call and
    its results that alone exceeds `room` is a piece of its own.
    """
    joints = [*joints_of(messages), len(messages)] if messages else []
    gone = [0, *accumulate(costs)]
    ends = list[int]()
    start = 0
    while start < len(messages):
        ahead = [index for index in joints if index > start]
        fitting = [index for index in ahead if gone[index] - gone[start] <= room] or ahead[:1]
        end = fitting[-1]
        if end < len(messages):
            turns = [index for index in fitting if begins_turn(messages, index)]
            if turns and gone[turns[-1]] - gone[start] >= (gone[end] - gone[start]) // 2:
                end = turns[-1]
        ends.append(end)
        start = end
    return ends


def joints_of(messages: Sequence[Message]) -> list[int]:
    """The places inside the row, in order, where it may be parted."""
    called = dict[str, int]()
    open_until = list(range(len(messages)))
    for index, message in enumerate(messages):
        if message.role == "tool" and (at := called.get(message.tool_call_id)) is not None:
            open_until[at] = index
        for call in message.tool_calls:
            called[call.id] = index
    joints = list[int]()
    reach = 0
    for index in range(1, len(messages)):
        reach = max(reach, open_until[index - 1])
        if reach < index:
            joints.append(index)
    return joints


def begins_turn(messages: Sequence[Message], index: int) -> bool:
    """Whether the message at `index` (not the first) begins a turn."""
    message, before = messages[index], messages[index - 1]
    if message.role != "user":
        return False
    if message.turn_id:
        return message.turn_id != before.turn_id
    return message.origin != "nanobot"
