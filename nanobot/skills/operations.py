"""The operations named `skills.…`, as the command line calls them: on a running gateway or on the
files. Whoever reaches these is the owner of the home. Arguments and results are JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from nanobot.errors import NanobotError
from nanobot.security.names import visible
from nanobot.skills.service import SkillsService
from nanobot.skills.views import fields, line_fields, package_fields

Arguments = Mapping[str, object]

MOST_SHOWN = 200_000
"""Characters of a file that are shown."""


class SkillsOperations:
    """`SkillsService` by name."""

    def __init__(self, service: SkillsService) -> None:
        self._service = service

    def table(self) -> Mapping[str, Callable[[Arguments], Awaitable[object]]]:
        """By name, as they are called over the socket."""
        return {
            "skills.list": self.list,
            "skills.show": self.show,
            "skills.file": self.file,
            "skills.enable": self.enable,
            "skills.disable": self.disable,
            "skills.package": self.package,
            "skills.install": self.install,
        }

    async def list(self, _: Arguments) -> dict[str, object]:
        """No arguments."""
        skills = [line_fields(skill) for skill in await self._service.list()]
        return {"skills": skills, "trouble": self._service.trouble}

    async def show(self, arguments: Arguments) -> dict[str, object]:
        """`name`."""
        return fields(await self._service.find(_text(arguments, "name")))

    async def file(self, arguments: Arguments) -> dict[str, object]:
        """`name`, `file`. What cannot be seen is written as escapes."""
        path = _text(arguments, "file")
        content = await self._service.file(_text(arguments, "name"), path)
        if b"\0" in content:
            raise NanobotError(f"{path} is binary ({len(content):,} bytes)")
        return {"file": path, "text": visible(content.decode("utf-8", "replace"))[:MOST_SHOWN]}

    async def enable(self, arguments: Arguments) -> dict[str, object]:
        """`name`, `digest` of what was shown, `everyone`."""
        return fields(
            await self._service.enable(
                _text(arguments, "name"),
                _text(arguments, "digest"),
                everyone=arguments.get("everyone") is True,
            )
        )

    async def disable(self, arguments: Arguments) -> dict[str, object]:
        """`name`."""
        return fields(await self._service.disable(_text(arguments, "name")))

    async def package(self, arguments: Arguments) -> dict[str, object]:
        """`path`, absolute: what would be installed."""
        return package_fields(*await self._service.package(_text(arguments, "path")))

    async def install(self, arguments: Arguments) -> dict[str, object]:
        """`path`, `digest` of what was shown, `replace`, `everyone`."""
        return fields(
            await self._service.install(
                _text(arguments, "path"),
                _text(arguments, "digest"),
                replacing=arguments.get("replace") is True,
                everyone=arguments.get("everyone") is True,
            )
        )


def _text(arguments: Arguments, key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value.strip():
        raise NanobotError(f"the operation needs a text in {key!r}")
    return value.strip()
