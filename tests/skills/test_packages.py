"""Archives of skills: unpacked files, and reasons to reject an archive."""

from __future__ import annotations

import io
import ssl
import subprocess
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from nanobot.errors import NanobotError
from nanobot.security.egress import Egress
from nanobot.skills.packages import Archive, expect_digest, fetch_archive, unpack
from tests.doubles.web import FakeWeb

SKILL = "---\nname: tea\ndescription: Tea.\n---\nBoil water.\n"
Pack = Callable[[Mapping[str, str]], bytes]


def make_zip(files: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def make_tar(files: Mapping[str, str], mode: str = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


def plain_tar(files: Mapping[str, str]) -> bytes:
    return make_tar(files, "w")


def make_link(kind: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("tea/SKILL.md")
        entry.size = len(SKILL)
        archive.addfile(entry, io.BytesIO(SKILL.encode()))
        link = tarfile.TarInfo("tea/notes.md")
        link.type, link.linkname = kind, "/etc/passwd"
        archive.addfile(link)
    return made.getvalue()


def zip_with_a_link() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("SKILL.md", SKILL)
        entry = zipfile.ZipInfo("notes.md")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    return made.getvalue()


def find_refusal(content: bytes, target: Path, folder: str = "") -> str:
    with pytest.raises(NanobotError) as caught:
        unpack(Archive("tea.zip", content), target, folder)
    assert not any(target.iterdir())
    return f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("pack", [make_zip, make_tar, plain_tar])
@pytest.mark.parametrize("prefix", ["", "tea/", "repo-main/skills/tea/"])
def test_the_one_skill_of_an_archive_is_unpacked_wherever_it_lies(
    pack: Pack, prefix: str, tmp_path: Path
) -> None:
    files = {f"{prefix}SKILL.md": SKILL, f"{prefix}references/more.md": "more"}
    beside = {} if prefix in ("", "tea/") else {"repo-main/README.md": "no part of it"}
    place = unpack(Archive("https://e.example/tea.zip?x=/y", pack({**beside, **files})), tmp_path)
    assert place == tmp_path / "tea"
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert found == {"SKILL.md", "references/more.md"}
    assert (place / "SKILL.md").read_text() == SKILL


def test_of_several_one_is_chosen(tmp_path: Path) -> None:
    content = make_zip({"r/a/SKILL.md": SKILL, "r/b/SKILL.md": SKILL, "r/b/x/SKILL.md": SKILL})
    said = find_refusal(content, tmp_path)
    assert "contains 2 skills" in said
    assert "r/a, r/b" in said
    assert "no SKILL.md in c" in find_refusal(content, tmp_path, "c")
    assert unpack(Archive("x", content), tmp_path, "b") == tmp_path / "b"
    assert (tmp_path / "b" / "x" / "SKILL.md").exists()


@pytest.mark.parametrize("pack", [make_zip, make_tar])
@pytest.mark.parametrize(
    "name",
    [
        "/etc/x",
        "../x",
        "tea/../../x",
        "tea//x",
        "tea/./x",
        "tea\\x",
        "tea/\x1b[2J",
        "a/" * 25 + "x",
    ],
)
def test_a_name_that_leads_elsewhere_makes_it_unusable(
    pack: Pack, name: str, tmp_path: Path
) -> None:
    assert "contains a file with an invalid name" in find_refusal(
        pack({"SKILL.md": SKILL, name: "x"}), tmp_path
    )


@pytest.mark.parametrize(
    "content",
    [
        make_link(tarfile.SYMTYPE),
        make_link(tarfile.LNKTYPE),
        make_link(tarfile.FIFOTYPE),
        zip_with_a_link(),
    ],
)
def test_links_and_devices_make_it_unusable(content: bytes, tmp_path: Path) -> None:
    assert "contains a link" in find_refusal(content, tmp_path)


def test_names_that_a_file_system_may_not_tell_apart_make_it_unusable(tmp_path: Path) -> None:
    said = find_refusal(make_zip({"SKILL.md": SKILL, "a.md": "1", "A.md": "2"}), tmp_path)
    assert "contains A.md twice" in said


@pytest.mark.parametrize("pack", [make_zip, make_tar])
def test_what_unpacks_to_too_much_is_refused(pack: Pack, tmp_path: Path) -> None:
    large = {"SKILL.md": SKILL, "a": "0" * 25_000_000, "b": "0" * 25_000_000}
    assert "bytes" in find_refusal(pack(large), tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_deflate_is_unpacked(method: int, tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("SKILL.md", SKILL)
        archive.writestr("a", b"0" * 30_000_000)
    tracemalloc.start()
    try:
        assert "not compressed with Deflate" in find_refusal(made.getvalue(), tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pack", [make_zip, make_tar])
@pytest.mark.parametrize(
    "names",
    [("a", "a/b"), ("a/b", "a"), ("A/b", "a"), ("a/b", "A"), ("caf\u00e9/b", "cafe\u0301")],
)
def test_a_name_is_a_file_or_a_folder(pack: Pack, names: tuple[str, str], tmp_path: Path) -> None:
    said = find_refusal(pack({"SKILL.md": SKILL, **dict.fromkeys(names, "x")}), tmp_path)
    assert f"contains {names[1]} both as a file and as a folder" in said


def test_a_name_with_nul_is_no_other_name(tmp_path: Path) -> None:
    content = make_zip({"SKILL.md": SKILL, "a.md\x01.sh": "x"}).replace(b"a.md\x01", b"a.md\0")
    shown = "contains a file with an invalid name: 'a.md\\\\x00.sh'"
    assert shown in find_refusal(content, tmp_path)


@pytest.mark.parametrize("pack", [make_zip, make_tar])
@pytest.mark.parametrize(
    "name",
    [".git/config", "docs/.git/hooks/post-checkout", ".envrc", ".vscode/tasks.json", ".hg/hgrc"],
)
def test_what_programs_obey_by_themselves_is_refused_by_name(
    pack: Pack, name: str, tmp_path: Path
) -> None:
    said = find_refusal(pack({"tea/SKILL.md": SKILL, f"tea/{name}": "x"}), tmp_path)
    assert f"contains {name}, and other programs load" in said


def test_what_lies_beside_the_skill_is_not_installed_and_does_not_matter(tmp_path: Path) -> None:
    content = make_zip({"repo/.vscode/tasks.json": "x", "repo/tea/SKILL.md": SKILL})
    assert [one.name for one in unpack(Archive("x.zip", content), tmp_path).iterdir()] == [
        "SKILL.md"
    ]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_in_headers_are_no_archive(kind: bytes, tmp_path: Path) -> None:
    entry = tarfile.TarInfo("x")
    entry.type = kind
    content = plain_tar({"SKILL.md": SKILL})
    assert "is not a readable archive" in find_refusal(entry.tobuf() * 5_000 + content, tmp_path)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    many = {f"{number}": "" for number in range(5_001)}
    assert "contains more than 5,000 files" in find_refusal(
        make_zip({"SKILL.md": SKILL, **many}), tmp_path
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", b"\x1f\x8bno", b"PK\x03\x04", make_zip({"SKILL.md": SKILL})[:60]],
    ids=["nothing", "words", "gzip", "zip", "cut off"],  # that one has the time in it
)
def test_what_is_no_archive_is_said(content: bytes, tmp_path: Path) -> None:
    assert "is not a readable archive" in find_refusal(content, tmp_path)


def test_only_the_archive_with_the_hash_that_was_given_is_taken() -> None:
    archive = Archive("x", b"abc")
    expect_digest(archive, f"sha256:{archive.digest.upper()}")
    with pytest.raises(NanobotError, match=archive.digest):
        expect_digest(archive, "0" * 64)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for site.example, and its key."""
    made, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=site.example", "-addext",
         "subjectAltName=DNS:site.example", "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


async def here(_: str) -> Sequence[IPv4Address]:
    return [IPv4Address("127.0.0.1")]


async def test_an_address_is_fetched_by_https_alone_and_within_limits(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    async with FakeWeb(tls=served) as web:
        place = f"https://site.example:{web.port}"
        web.put("/tea.zip", make_zip({"SKILL.md": SKILL}), "application/zip")
        web.redirect("/plain", "http://site.example/tea.zip")
        web.put("/large", b"0" * 20_000_001, "application/zip")
        egress = Egress(allow_hosts=[web.place], resolve=here, tls=trusting)
        archive = await fetch_archive(egress, f"{place}/tea.zip")
        assert unpack(archive, tmp_path).name == "tea"
        for address, reason in (
            (f"http://site.example:{web.port}/tea.zip", "is not an https address"),
            (f"{place}/plain", "is not an https address"),
            (f"{place}/large", "20"),
            (f"{place}/nothing", "status 404"),
        ):
            with pytest.raises(NanobotError, match=reason):
                await fetch_archive(egress, address)
        await egress.close()
