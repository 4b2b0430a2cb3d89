"""`/skills`: what there is, for the owner. What decides future behaviour is enabled in the terminal
only, where all of it can be shown first."""

from __future__ import annotations

from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.skills.service import SkillsService
from nanobot.skills.views import details, listing

_ENABLING = "Skills are enabled and disabled in the terminal: `nanobot skills enable NAME`."


class SkillsCommand:
    """`/skills [NAME]`."""

    def __init__(self, service: SkillsService) -> None:
        self._service = service

    def register(self, registry: CommandRegistry) -> None:
        """Add it to `registry`."""
        registry.register(
            Command("skills", "What I have instructions for", self._run, "[NAME]", "owner")
        )

    async def _run(self, call: CommandCall) -> Answer:
        words = call.arguments.split()
        if not words or words == ["list"]:
            return Answer(listing(await self._service.list(), self._service.trouble))
        if words[0] in {"enable", "disable", "install"}:
            return Answer(_ENABLING)
        return Answer(details(await self._service.find(words[-1])))
