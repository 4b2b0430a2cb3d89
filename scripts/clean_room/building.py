"""Execution of a Dockerfile: each step in a clean root, as by a builder.

Each stage that the last one needs gets its own root. Steps are not cached, because they have to
work from nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from scripts.clean_room.accounts import as_user
from scripts.clean_room.context import Context
from scripts.clean_room.dockerfile import (
    Arg,
    Copy,
    Dockerfile,
    Healthcheck,
    Instruction,
    Place,
    Run,
    Stage,
    Values,
    Words,
)
from scripts.clean_room.machine import PATH, Machine
from scripts.clean_room.roots import RoomError, Roots, release_of
from scripts.clean_room.steps import StepFailed, Steps
from scripts.clean_room.words import expand, split


@dataclass(frozen=True, slots=True)
class Image:
    """The state of a stage: a root, and its run settings."""

    root: Path
    variables: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: Mapping[str, str] = field(default_factory=dict)
    user: str = "root"
    folder: str = "/"
    volumes: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    health: Healthcheck | None = None

    @property
    def step_variables(self) -> dict[str, str]:
        """The variables of a step."""
        return {**self.arguments, **self.variables}


class Builder:
    """Builds the last stage of a Dockerfile. `given` are the values of `--build-arg`."""

    def __init__(
        self,
        file: Dockerfile,
        context: Context,
        roots: Roots,
        steps: Steps,
        given: Mapping[str, str],
    ) -> None:
        self._file, self._context, self._roots, self._steps = file, context, roots, steps
        self._given = given
        self._built: dict[str, Image] = {}

    def build(self) -> Image:
        """Build it and print the table of steps. Raise `StepFailed`."""
        *_, last = self._file.stages
        needed = set(self._names_of_needed_stages(last))
        for stage in self._file.stages:
            if stage is last or stage.name in needed:
                image = self._stage(stage)
                self._built[stage.name or "the last"] = image
        return image

    def _names_of_needed_stages(self, stage: Stage) -> Iterator[str]:
        """Yield the names of all stages on which this one depends."""
        by_name = {stage.name: stage for stage in self._file.stages if stage.name}
        copied = (one.step.stage for one in stage.instructions if isinstance(one.step, Copy))
        for name in (self._base(stage), *filter(None, copied)):
            if name in by_name:
                yield name
                yield from self._names_of_needed_stages(by_name[name])

    def _base(self, stage: Stage) -> str:
        known = {arg.name: self._given.get(arg.name, arg.default) for arg in self._file.arguments}
        return expand(stage.base, known)

    def _stage(self, stage: Stage) -> Image:
        base = self._base(stage)
        with self._steps.step(f"FROM {base}" + (f" AS {stage.name}" if stage.name else "")):
            if base in self._built:
                before = self._built[base]
                image = replace(before, root=self._roots.like(before.root), arguments={})
            else:
                image = Image(self._roots.fresh(release_of(base)))
        for instruction in stage.instructions:
            image = self._carry_out(image, instruction)
        return image

    def _carry_out(self, image: Image, instruction: Instruction) -> Image:
        match instruction.step:
            case Run(words):
                with self._steps.step(instruction.text) as step:
                    self._run(image, words)
                    step.note(f"{_megabytes(image.root)} MB")
            case Copy() as copy:
                with self._steps.step(instruction.text) as step:
                    step.note(f"{self._copy(image, copy)} files")
            case Arg(name, default):
                value = self._given.get(name, expand(default, image.step_variables))
                return replace(image, arguments={**image.arguments, name: value})
            case Values(kind, text):
                pairs = dict(_pairs(expand(text, image.step_variables)))
                if kind == "ENV":
                    return replace(image, variables={**image.variables, **pairs})
            case Place(kind, word):
                return self._place(image, kind, expand(word, image.step_variables))
            case Words("ENTRYPOINT", words):
                return replace(image, entrypoint=words, cmd=())
            case Words(_, words):
                return replace(image, cmd=words)
            case Healthcheck() as health:
                return replace(image, health=health)
        return image

    def _place(self, image: Image, kind: str, word: str) -> Image:
        if kind == "USER":
            as_user(image.root, word)  # fails if it doesn't exist
            return replace(image, user=word)
        if kind == "VOLUME":
            return replace(image, volumes=(*image.volumes, word))
        folder = os.path.normpath(f"{image.folder}/{word}") if word[0] != "/" else word
        Path(f"{image.root}{folder}").mkdir(parents=True, exist_ok=True)
        return replace(image, folder=folder)

    def _run(self, image: Image, words: tuple[str, ...]) -> None:
        machine = Machine(
            image.root,
            self._roots.lent,
            image.user,
            folder=image.folder,
            variables=image.step_variables,
        )
        machine.run(*words)
        self._roots.tidy(image.root)

    def _copy(self, image: Image, copy: Copy) -> int:
        sources = [expand(source, image.step_variables) for source in copy.sources]
        target = expand(copy.target, image.step_variables)
        whole = target if target.startswith("/") else f"{image.folder}/{target}"
        place = Path(f"{image.root}{os.path.normpath(whole)}")
        many = target.endswith(("/", "/.", "./")) or target == "." or len(sources) > 1
        copied: list[Path] = []
        for source in sources:
            try:
                copied += self._copy_one(copy, source, place, into=many)
            except FileNotFoundError as error:
                raise StepFailed(str(error)) from error
        if copy.owner or copy.mode:
            self._hand_over(image, copy, copied)
        return len(copied)

    def _copy_one(self, copy: Copy, source: str, place: Path, *, into: bool) -> Iterable[Path]:
        if copy.stage:
            base = self._built[copy.stage].root / source.strip("/")
            found = [path for path in sorted(base.rglob("*")) if _is_leaf(path)]
            if not (base.is_dir() or base.exists()):
                raise FileNotFoundError(f"{source} does not exist in the stage {copy.stage}")
            pairs = [(path, path.relative_to(base)) for path in found] or [(base, Path(base.name))]
        else:
            base = self._context.folder / source
            names = self._context.below(source)
            pairs = [
                (self._context.folder / name, (self._context.folder / name).relative_to(base))
                for name in names
            ]
        if base.is_dir():
            return [_put(path, place / name) for path, name in pairs]
        return [_put(base, place / base.name if into or place.is_dir() else place)]

    def _hand_over(self, image: Image, copy: Copy, copied: Iterable[Path]) -> None:
        inside = [str(path)[len(str(image.root)) :] for path in copied]
        orders = ((["chown", "-h"], copy.owner), (["chmod"], copy.mode))
        for order, what in orders:
            if what and inside:
                command = ["chroot", str(image.root), *order, what, "--", *inside]
                if subprocess.run(command, check=False).returncode != 0:
                    raise StepFailed(f"{order[0]} {what} failed")


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for word in split(text):
        name, equals, value = word.partition("=")
        if not equals:
            raise StepFailed(f"{word}: write name=value")
        yield name, value


def _is_leaf(path: Path) -> bool:
    return path.is_symlink() or not path.is_dir()


def _put(source: Path, target: Path) -> Path:
    """Copy one file as Docker does: its mode and time are kept, and it belongs to root."""
    if target.is_symlink() or target.is_file():
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)
    return target


def _megabytes(root: Path) -> int:
    done = subprocess.run(
        ["du", "-sxm", str(root)], capture_output=True, text=True, check=False
    )  # a file that disappears is no failure
    first = done.stdout.split()
    if not first:
        raise RoomError(f"du printed no size for {root}")
    return int(first[0])
