"""The settings of what nanobot remembers: `memory` and `dream`, and who the owner is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field, field_validator

from nanobot.config.base import Fault, Strict
from nanobot.config.side_model import SideModel
from nanobot.config.values import Count, PersonId, Unfit

_SCHEDULES = "Write it like `every 24h` or `0 4 * * *`."


class EmbeddingSettings(SideModel):
    """The model that turns texts into vectors."""

    model: str = Field(
        default="",
        description="The model, as the server knows it. Empty: search works on words alone.",
    )


class MemorySettings(Strict):
    """What is remembered, when, and who shares it."""

    window: Count = Field(
        default=100,
        description="Messages that a conversation may have in the prompt before the oldest are put "
        "away into memory, however large the model's context window is.",
    )
    chunk: Count = Field(
        default=50,
        description="How many messages are then put away at once; fewer than `memory.window`.",
    )
    idle_minutes: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Minutes without a message after which a conversation is put away; 0 for "
        "never.",
    )
    model: str = Field(
        default="",
        description="The model that condenses conversations and dreams, on the same server as the "
        "main one; empty for the main one.",
    )
    notices: bool = Field(
        default=False,
        description="Whether the chat is told, in one line, what was put away from it.",
    )
    identities: tuple[tuple[str, ...], ...] = Field(
        default=(),
        description="People with several accounts: for each, the list of their `channel:id`. They "
        "share one memory, and `/continue` carries a conversation over.",
    )
    groups_see_owner: bool = Field(
        default=False,
        description="Whether groups are answered with the owner's memory as well as their own.",
    )
    library: bool = Field(
        default=True,
        description="Whether the documents in `workspace/library/` are searched with the rest.",
    )
    # Constructed, lest importing this builds its validator.
    embeddings: EmbeddingSettings = Field(
        default=EmbeddingSettings.model_construct(),
        description="Search by meaning, as an addition to search by words.",
    )

    @field_validator("identities")
    @classmethod
    def _whole_keys(cls, people: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        keys = [key for person in people for key in person]
        example = "Write it like [[telegram:12345, whatsapp:4915112345678]]."
        for key in keys:
            channel, _, account = key.partition(":")
            if not channel.strip() or not account.strip():
                raise Unfit("must hold accounts written as channel:id", example)
        if any(len(person) < 2 for person in people):
            raise Unfit("must give each person at least two accounts", example)
        if len(set(keys)) < len(keys):
            raise Unfit("names one account twice", "Put all accounts of a person into one list.")
        return people

    def faults(self) -> Iterator[Fault]:
        """What is wrong between the keys, each right in itself."""
        if self.chunk >= self.window:
            yield Fault(
                ("chunk",),
                "must be less than `memory.window`",
                "Half of `memory.window` is a good choice.",
            )
        for fault in self.embeddings.faults():
            yield Fault(("embeddings", *fault.key), fault.message, fault.hint)


class DreamSettings(Strict):
    """Learning from what was said, at quiet times."""

    enabled: bool = Field(
        default=True,
        description="Whether it happens by itself; `/dream` works anyway.",
    )
    cron: str = Field(
        default="every 24h",
        description="When: `every 24h` (or `30m`, `7d`), or the five fields of cron such as "
        "`0 4 * * *`.",
    )
    max_unread: Count = Field(
        default=20,
        description="So many history entries that it has not read make it happen sooner.",
    )
    batch: Count = Field(default=20, description="History entries that it reads at a time.")
    max_calls: Count = Field(default=20, description="Model calls that one run may make.")
    max_tokens: Count = Field(
        default=200_000, description="Tokens that one run may use, answers included."
    )
    digest: bool = Field(
        default=False,
        description="Whether the owner is told afterwards what was learned, with a button to undo "
        "it.",
    )

    @field_validator("cron")
    @classmethod
    def _known_schedule(cls, text: str) -> str:
        from nanobot.cron.schedule import At, ScheduleError, parse  # only where one is set

        try:
            schedule = parse(text)
        except ScheduleError as error:
            raise Unfit("is no schedule", _SCHEDULES) from error
        if isinstance(schedule, At):
            raise Unfit("must be a schedule that comes again", _SCHEDULES)
        return text.strip()


class OwnerSettings(Strict):
    """Who the owner is, on each channel."""

    owner: Mapping[str, tuple[PersonId, ...]] = Field(
        default={},
        description="Your own ids on that channel, so that what you say there goes into your "
        "memory and commands that only the owner may give work. Other people have a memory of "
        "their own. The terminal is always yours.",
    )

    @field_validator("owner")
    @classmethod
    def _named(cls, owner: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        if any("*" in ids for ids in owner.values()):
            raise Unfit("must name you; `*` would make everyone the owner", "Write your own ids.")
        return owner
