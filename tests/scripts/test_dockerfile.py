"""The check of the Dockerfile reads it like Docker, and rejects unknown instructions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.clean_room.context import Context, is_ignored, rules_of
from scripts.clean_room.dockerfile import (
    Arg,
    Copy,
    Dockerfile,
    DockerfileError,
    Healthcheck,
    Place,
    Run,
    Words,
    parse,
)
from scripts.clean_room.roots import RoomError, release_of
from scripts.clean_room.words import expand
from scripts.lock import read_requirements

ROOT = Path(__file__).parents[2]

SMALL = r"""
# a comment
ARG DEBIAN=debian:trixie-slim
FROM ${DEBIAN} AS Build
ARG WITH="a b"
RUN one \
    # a comment in between
    && two
COPY --from=build --chown=1:2 ["a b", "c"]
FROM build
USER nanobot
HEALTHCHECK --interval=1m30s --retries=2 CMD ["ok", "it is"]
ENTRYPOINT ["tini", "--"]
CMD nanobot gateway
"""


def test_a_dockerfile_is_read_stage_by_stage() -> None:
    parsed = parse(SMALL)
    assert parsed.arguments == (Arg("DEBIAN", "debian:trixie-slim"),)
    first, last = parsed.stages
    assert (first.base, first.name, last.base) == ("${DEBIAN}", "build", "build")
    assert [one.step for one in first.instructions] == [
        Arg("WITH", "a b"),
        Run(("/bin/sh", "-c", "one     && two")),
        Copy(("a b",), "c", "build", "1:2", ""),
    ]
    assert [one.line for one in first.instructions] == [5, 6, 9]
    assert [one.step for one in last.instructions] == [
        Place("USER", "nanobot"),
        Healthcheck(("ok", "it is"), interval=90.0, retries=2),
        Words("ENTRYPOINT", ("tini", "--")),
        Words("CMD", ("/bin/sh", "-c", "nanobot gateway")),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: there is no FROM"),
        ("RUN x", "line 1: RUN before the first FROM"),
        ("FROM a\nONBUILD RUN x", "line 2: ONBUILD is not supported"),
        ("FROM a\nRUN --mount=type=cache,target=/c x", "line 2: RUN: flags and here-documents"),
        ("FROM a\nCOPY --parents a b", "line 2: COPY: --parents is not supported"),
        ("FROM a\nCOPY a", "line 2: COPY: requires a source and a target"),
        (
            "FROM a\nHEALTHCHECK --interval=soon CMD x",
            "line 2: HEALTHCHECK: soon is not a duration",
        ),
        ("FROM a\nRUN x \\", "line 2: the last line is continued"),
    ],
)
def test_what_is_not_understood_is_an_error_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(DockerfileError, match=problem):
        parse(text)


def test_variables_are_filled_in_as_docker_does() -> None:
    known = {"A": "1", "B": ""}
    assert expand(r"$A ${A} ${B:-else} ${A:+then} $C '$A' \$A", known) == r"1 1 else then  '$A' \$A"


def test_dockerignore_says_what_is_left_out_and_its_last_word_counts() -> None:
    rules = rules_of("# no\n*\n!nanobot\n!deploy/one.txt\n**/*.pyc\nnanobot/dist/\n")
    left_out = {"README.md", ".env", "deploy/two.txt", "nanobot/a/b.pyc", "nanobot/dist/x"}
    sent = {"nanobot/a/b.py", "nanobot/dist.py", "deploy/one.txt"}
    assert {path for path in left_out | sent if is_ignored(path, rules)} == left_out


def test_only_debian_releases_can_be_made() -> None:
    assert release_of("debian:trixie-slim") == "trixie"
    assert release_of("docker.io/library/debian:12") == "bookworm"
    assert release_of("debian:trixie-20251117-slim@sha256:0f") == "trixie"
    with pytest.raises(RoomError, match="alpine:3 is not a Debian release"):
        release_of("alpine:3")


def own_dockerfile() -> Dockerfile:
    return parse((ROOT / "Dockerfile").read_text())


def test_nothing_private_gets_into_the_image() -> None:
    context = Context(ROOT)
    copies = [
        one.step
        for stage in own_dockerfile().stages
        for one in stage.instructions
        if isinstance(one.step, Copy) and not one.step.stage
    ]
    sent = {
        str(name) for copy in copies for source in copy.sources for name in context.below(source)
    }
    assert "nanobot/cli/main.py" in sent
    assert "channels/nanobot_whatsapp/bridge/package-lock.json" in sent
    parts = {part for name in sent for part in Path(name).parts}
    assert not parts & {".git", "node_modules", "dist", "__pycache__", "secrets.env", "tests"}
    top = {Path(name).parts[0] for name in sent}
    allowed = {"LICENSE", "README.md", "channels", "deploy", "nanobot", "pyproject.toml"}
    allowed.add("config.example.yaml")
    assert top == {*allowed, "workspace"}


def test_the_image_ends_as_a_user_with_a_health_check_and_an_init_process() -> None:
    steps = [one.step for one in own_dockerfile().stages[-1].instructions]
    assert Place("USER", "nanobot") in steps
    assert Words("ENTRYPOINT", ("tini", "--", "nanobot")) in steps
    (health,) = [step for step in steps if isinstance(step, Healthcheck)]
    assert health.words == ("nanobot", "status", "--check")


def test_the_image_has_a_fixed_version_of_each_package_that_nanobot_asks_for() -> None:
    from packaging.requirements import Requirement  # comes with pytest

    text = (ROOT / "deploy" / "requirements.txt").read_text().replace(" \\\n", "")
    entries = [line.split() for line in text.splitlines() if not line.startswith("#")]
    fixed = dict(entry[0].split("==") for entry in entries)
    hashes = [
        re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", it) for _, *some in entries for it in some
    ]
    assert all(hashes)
    assert all(len(entry) > 1 for entry in entries)
    requirements = [Requirement(line) for line in read_requirements()]
    assert {"aiohttp", "mcp", "pypdf", "pyrage"} <= {each.name for each in requirements}
    assert [r.name for r in requirements if not r.specifier.contains(fixed.get(r.name, "0"))] == []


def test_the_image_begins_with_a_base_that_is_fixed_to_the_byte() -> None:
    (base,) = re.findall(r"^ARG DEBIAN=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"debian:trixie-slim@sha256:[0-9a-f]{64}", base)
