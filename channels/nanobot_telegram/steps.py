"""Takes the steps of `showing`: one call of the Bot API each. Nothing raises out of here."""

from __future__ import annotations

from dataclasses import dataclass

from loguru import logger
from telegram.constants import ChatAction
from telegram.error import BadRequest, Forbidden

from nanobot_telegram.actions import Remove, Say, Step, Text, Typing
from nanobot_telegram.calls import number
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.failures import Flooded
from nanobot_telegram.refusals import is_not_modified
from nanobot_telegram.texts import NO_LINK_PREVIEW, Saying


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step went. `message_id` is that of a new preview message, else 0; `wait` is what
    Telegram asks for, in seconds."""

    ok: bool
    message_id: int = 0
    wait: float = 0.0


class Steps:
    """Makes the calls that show something. What stands in a group is noted in `chats`."""

    def __init__(self, client: TelegramClient, chats: Chats) -> None:
        self._client, self._chats = client, chats

    async def take(self, chat_id: str, step: Step) -> Outcome:
        """Take a step in a chat."""
        try:
            return Outcome(ok=True, message_id=await self._call(chat_id, step))
        except Flooded as error:
            return Outcome(ok=False, wait=error.seconds)
        except (BadRequest, Forbidden) as error:
            return Outcome(ok=self._is_settled(chat_id, step, error))
        except Exception as error:  # noqa: BLE001 - the boundary: progress is best effort
            logger.debug("telegram: {} in {}: {!r}", type(step).__name__, chat_id, error)
            return Outcome(ok=False)

    def _is_settled(self, chat_id: str, step: Step, error: BadRequest | Forbidden) -> bool:
        """Whether a refusal means that nothing is left to do."""
        if isinstance(error, Forbidden):
            self._chats.set_unreachable(chat_id)
        if isinstance(step, Remove):  # not there any more, or never ours to remove again
            self._chats.remove_preview(chat_id, step.message_id)
            return True
        if is_not_modified(error.message):
            return True
        logger.debug("telegram: {} in {}: {}", type(step).__name__, chat_id, error)
        return False

    async def _call(self, chat_id: str, step: Step) -> int:
        bot, chat = self._client.bot, self._chats.current(chat_id)
        match step:
            case Typing():
                thread = number(step.thread_id)
                await bot.send_chat_action(chat, ChatAction.TYPING, message_thread_id=thread)
            case Text() if chat > 0:
                await self._draft(chat, step)
            case Text():
                return await self._write(chat_id, chat, step)
            case Remove():
                await bot.delete_message(chat, step.message_id)
                self._chats.remove_preview(chat_id, step.message_id)
            case Say():
                await self._post(chat, Saying.preview(step.text), step.thread_id)
        return 0

    async def _draft(self, chat: int, step: Text) -> None:
        saying = Saying.preview(step.text, step.hint, step.output)
        if saying.text.strip():
            await self._client.bot.send_message_draft(
                chat,
                step.draft_id,
                saying.text,
                message_thread_id=number(step.thread_id),
                entities=saying.entities or None,
            )

    async def _write(self, chat_id: str, chat: int, step: Text) -> int:
        """The message of a group that shows a reply; its id if it is new.

        One that was posted while the answer was lost has no id for us, and stays.
        """
        saying = Saying.preview(step.text, step.hint, step.output)
        if not saying.text.strip():
            return 0
        if not step.message_id:
            message_id = await self._post(chat, saying, step.thread_id)
            self._chats.add_preview(chat_id, message_id)
            return message_id
        await self._client.bot.edit_message_text(
            saying.text,
            chat,
            step.message_id,
            entities=saying.entities or None,
            link_preview_options=NO_LINK_PREVIEW,
        )
        return 0

    async def _post(self, chat: int, saying: Saying, thread_id: str) -> int:
        message = await self._client.bot.send_message(
            chat,
            saying.text,
            entities=saying.entities or None,
            disable_notification=True,
            message_thread_id=number(thread_id),
            link_preview_options=NO_LINK_PREVIEW,
        )
        return message.message_id
