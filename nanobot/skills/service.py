"""What the owner does with skills: look at them, enable and disable them, install one.

Enabling names the digest of what was shown: should a file have changed meanwhile, nothing is
enabled. One change at a time.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from nanobot.clock import Clock
from nanobot.errors import NanobotError, ToolError
from nanobot.security.names import printable
from nanobot.skills.installing import Package, copy, package_at
from nanobot.skills.loader import SkillsLoader
from nanobot.skills.state import Enabled
from nanobot.skills.values import Skill


class SkillsService:
    """The owner's side of `loader`."""

    def __init__(self, loader: SkillsLoader, clock: Clock) -> None:
        self._loader, self._clock = loader, clock
        self._changing = asyncio.Lock()

    @property
    def trouble(self) -> str:
        """What is wrong with the list of enabled skills; empty where nothing is."""
        return self._loader.state.trouble

    async def list(self) -> tuple[Skill, ...]:
        """All skills; see `SkillsLoader.list`."""
        return await asyncio.to_thread(self._loader.list)

    async def find(self, name: str) -> Skill:
        """The skill called `name`. Raises `NanobotError`."""
        skill = await asyncio.to_thread(self._loader.find, name)
        if skill is None:
            known = ", ".join(dict.fromkeys(one.name for one in await self.list()))
            raise NanobotError(f"no skill {printable(name)!r}", hint=f"There are: {known}.")
        return skill

    async def file(self, name: str, path: str) -> bytes:
        """A file of a skill, enabled or not, for the owner to judge. Raises `NanobotError`."""
        skill = await self.find(name)
        return await asyncio.to_thread(self._file, skill, path)

    async def enable(self, name: str, digest: str, *, everyone: bool = False) -> Skill:
        """Let the model have the skill in the form that `digest` names; for `everyone` also when
        it answers others than the owner. Raises `NanobotError`."""
        async with self._changing:
            return await self._enable(name, digest, everyone=everyone)

    async def disable(self, name: str) -> Skill:
        """Keep the skill from the model. Raises `NanobotError`."""
        async with self._changing:
            await self.find(name)
            state = self._loader.state
            await asyncio.to_thread(state.save, state.book.disabling(name))
            return await self.find(name)

    async def package(self, path: str) -> tuple[Package, Skill | None]:
        """What would be installed from the absolute `path`, and what that would replace in the
        workspace. Raises `NanobotError`."""
        package = await asyncio.to_thread(package_at, Path(path))
        found = await asyncio.to_thread(self._loader.find, package.name)
        return package, found if found and found.source == "workspace" else None

    async def install(
        self, path: str, digest: str, *, replacing: bool = False, everyone: bool = False
    ) -> Skill:
        """Copy the skill at `path` into the workspace and enable it, if it still is what `digest`
        names. Raises `NanobotError`."""
        async with self._changing:
            package, before = await self.package(path)
            if package.digest != digest:
                raise _changed(package.name)
            if before is not None and not replacing:
                raise NanobotError(
                    f"there is a skill {package.name} in the workspace already",
                    hint="Add --replace to put this one in its place.",
                )
            target = self._loader.place_of(package.name)
            await asyncio.to_thread(copy, package, target)
            return await self._enable(package.name, digest, everyone=everyone)

    async def _enable(self, name: str, digest: str, *, everyone: bool) -> Skill:
        skill = await self.find(name)
        if skill.status == "broken":
            raise NanobotError(f"the skill {name} cannot be used: {skill.problem}")
        if skill.digest != digest:
            raise _changed(name)
        state = self._loader.state
        enabled = None
        if skill.source == "workspace":
            files = {file.path: file.digest for file in skill.files}
            enabled = Enabled(files, everyone, self._clock.now().isoformat(timespec="seconds"))
        await asyncio.to_thread(state.save, state.book.enabling(name, enabled))
        skill = await self.find(name)
        if not skill.enabled:
            raise NanobotError(
                f"the skill {name} stays off: config.yaml names it under skills.disabled"
            )
        return skill

    def _file(self, skill: Skill, path: str) -> bytes:
        if skill.source == "built-in":
            return self._loader.read(replace(skill, status="enabled"), path)
        if path not in {file.path for file in skill.files}:
            known = ", ".join(file.path for file in skill.files)
            raise NanobotError(
                f"the skill {skill.name} has no file {printable(path)!r}", hint=f"It has: {known}"
            )
        place = self._loader.place_of(skill.name)
        content = place.root.place(f"{place.relative}/{path}").read_bytes(20_000_000)
        if content is None:
            raise ToolError(f"{printable(path)} has just gone")
        return content


def _changed(name: str) -> NanobotError:
    return NanobotError(
        f"the skill {name} was changed while you looked at it; nothing was enabled",
        hint=f"Look again: `nanobot skills show {name}`.",
    )
