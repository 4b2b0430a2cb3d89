"""What a person reads when a turn does not end in the model's own words, and what to do then."""

from __future__ import annotations

from nanobot.errors import (
    BudgetSpent,
    ContextTooLong,
    NanobotError,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
    StorageError,
)

TOO_LONG = (
    "\n\n[Your message has {:,} characters, more than fits: {:,} from its middle were not read."
    " Send it in parts, or put it into a file in the workspace and say its name.]"
)
NO_PICTURES = "\n\n[The model refused a picture, so it answered without seeing any.]"
BEHIND_ANOTHER = (
    "An earlier message of this conversation is still waiting; yours is kept and comes after it."
)
COMMAND_BEHIND = (
    "An earlier message of this conversation is still waiting: /{} comes after its answer. /stop"
    " drops that message."
)
GAVE_UP = (
    "nanobot stopped unexpectedly each of the {} times it worked on this message, so it will not"
    " try again by itself. The message is kept; /retry runs it once more."
)

LONGEST_PAUSE = 3600.0
"""Seconds that a start waits at most for a model that was out: a stored time further away tells of
a clock that was set back, or of a server's wish that may no longer hold."""


def ended_early(finish: str) -> str:
    """What is said under an answer that is not whole; empty for one that is."""
    match finish:
        case "stop" | "tool_calls" | "function_call" | "end_turn" | "eos":
            return ""
        case "length":
            return (
                "\n\n[This answer was cut off at the model's limit. Say “go on” to read the rest.]"
            )
        case "content_filter":
            return "\n\n[The provider's content filter ended this answer here.]"
        case _:
            return f"\n\n[The provider ended this answer early ({finish}).]"


def is_passing(error: ProviderError) -> bool:
    """Whether the same request may work later, so that the message should wait for it."""
    return isinstance(error, ProviderBusy | ProviderUnavailable)


def waiting_text(error: ProviderError, hours: float) -> str:
    """The one notice while the model is out."""
    return (
        f"The model cannot be reached right now ({_said(error)}). Your message is kept and will be"
        f" answered when it is back (for up to {hours:g} hours); /stop drops it."
    )


def failure_text(error: Exception) -> str:
    """The message that ends a turn which cannot succeed."""
    hint = f" {error.hint}" if isinstance(error, NanobotError) and error.hint else ""
    match error:
        case BudgetSpent():
            return f"I cannot answer: {_said(error)}.{hint} /retry then runs this message again."
        case ContextTooLong():
            return (
                "This conversation does not fit the model's context window, even shortened."
                " /new starts a fresh one; lower model.context_window if the model's is smaller."
                f" ({_said(error)})"
            )
        case ProviderRejected():
            return (
                f"The model refused the request: {_said(error)}.{hint} Then /retry runs it again."
            )
        case ProviderGarbage():
            return f"The model's answer could not be used: {_said(error)}.{hint} /retry asks again."
        case ProviderBusy() | ProviderUnavailable():
            return (
                f"The model could not be reached for too long: {_said(error)}.{hint}"
                " /retry runs the message again."
            )
        case _:
            return (
                f"Something broke inside nanobot ({type(error).__name__}). Your message is kept,"
                " the details are in the log; /retry runs it again."
            )


def storage_text(error: StorageError) -> str:
    """The one notice while the disk refuses."""
    return (
        f"Your message is waiting: {_said(error)}. {error.hint} It will be answered as soon as"
        " that is mended."
    )


def outage_pause(attempt: int, retry_after: float) -> float:
    """Seconds until the next try of a message whose model is out: 15 s doubling to 5 min, and never
    earlier than the provider asked."""
    return max(retry_after, min(15.0 * 2.0 ** min(attempt, 10), 300.0))


def _said(error: Exception) -> str:
    """An error as part of a sentence of ours."""
    return str(error).rstrip(". ")
