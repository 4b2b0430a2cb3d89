"""The settings of tools, MCP servers and routines: their limits, their secrets, and the messages
about wrong ones."""

from __future__ import annotations

from datetime import time, timedelta
from pathlib import Path

import pytest

from nanobot.config.values import plain_values, secrets_in
from tests.config.homes import Home

ABSOLUTE = "Write the full path, such as /home/ada/notes or ${HOME}/notes."
RULES = "Write it like nas.lan, 127.0.0.1:8000, [::1]:8000 or 192.168.1.0/24."


def server(*lines: str) -> str:
    return "\n".join(("mcp:", "  servers:", "    files:", *(f"      {line}" for line in lines), ""))


def tools(*lines: str) -> str:
    return "\n".join(("tools:", *(f"  {line}" for line in lines), ""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            tools("approval:", "  send: always"),
            "3: tools.approval.send: must be 'auto', 'ask', 'allow' or 'never'",
        ),
        (
            tools("exec:", "  sandbox: buble"),
            "3: tools.exec.sandbox: must be 'auto', 'bubblewrap', 'landlock' or 'none'\n"
            "  Did you mean 'bubblewrap'?",
        ),
        (
            tools("exec:", "  environment: {LD_PRELOAD: x.so}"),
            "3: tools.exec.environment: cannot contain LD_PRELOAD, which affects every program\n"
            "  Remove it.",
        ),
        (
            tools("exec:", "  environment: {'A B': x}"),
            "3: tools.exec.environment: must use variable names as keys\n"
            "  Write it like `LANG: C`.",
        ),
        (
            tools("exec:", "  environment: {A: [x]}"),
            "3: tools.exec.environment.A: must be text",
        ),
        (
            tools("exec:", "  paths: [notes]"),
            f"3: tools.exec.paths[0]: must be an absolute path\n  {ABSOLUTE}",
        ),
        (
            tools("exec:", "  paths: [/]"),
            "3: tools.exec.paths[0]: would give access to nanobot's own folder, with its keys and"
            " sessions\n"
            "  List only the folder that the program needs.",
        ),
        (
            tools("web:", "  search: {provider: brave}"),
            "3: tools.web.search.api_key: is required by brave\n"
            "  Write `api_key: ${BRAVE_API_KEY}` and set that variable.",
        ),
        (
            tools("web:", "  search: {provider: searxng}"),
            "3: tools.web.search.base_url: is required by searxng\n"
            "  Write it like https://search.example.org.",
        ),
        (
            tools("web:", "  proxy: socks5://127.0.0.1:1"),
            "3: tools.web.proxy: must be the URL of an HTTP proxy\n"
            "  Write it like http://127.0.0.1:3128.",
        ),
        (
            tools("web:", "  allow_hosts: [0.0.0.0/0]"),
            "3: tools.web.allow_hosts[0]: must not allow every address\n"
            "  List the hosts or networks that you need.",
        ),
        (
            server("args: [x]"),
            "3: mcp.servers.files: needs a `command` or a `url`\n"
            "  Write `command:` with a program, or `url:` with a URL.",
        ),
        (
            server("command: npx", "url: https://example.org/mcp"),
            "5: mcp.servers.files.url: cannot be combined with `command`\n  Remove one of them.",
        ),
        (
            server("url: https://example.org/mcp", "network: true"),
            "5: mcp.servers.files.network: has no effect with `url`\n  Remove it.",
        ),
        (
            server("command: npx", "headers: {Authorization: x}"),
            "5: mcp.servers.files.headers: has no effect with `command`\n  Remove it.",
        ),
        (
            server("url: https://example.org/mcp?key=1"),
            "4: mcp.servers.files.url: must not contain a user name, '?', or '#'\n"
            "  Put the key into `headers`.",
        ),
        (
            server("comand: npx"),
            "4: mcp.servers.files.comand: there is no such key\n  Did you mean 'command'?",
        ),
        (
            "mcp:\n  servers:\n    my__files: {command: npx}\n",
            "2: mcp.servers: has a name that cannot be part of a tool's name\n"
            "  Use up to 32 letters, digits, `-`, and single `_`, as in `files`.",
        ),
        (
            "heartbeat:\n  every: sometimes\n",
            "2: heartbeat.every: must be a time between a minute and 30 days, or off\n"
            "  Write it like 30m, 2h, or 1d, or write off.",
        ),
        (
            "heartbeat:\n  active_hours: 08:00-25:00\n",
            "2: heartbeat.active_hours: must be two different times of the day\n"
            "  Write it like 08:00-22:00, or 00:00-24:00 for always.",
        ),
        ("limits:\n  tokens_per_day: -1\n", "2: limits.tokens_per_day: must be at least 0"),
    ],
)
def test_a_wrong_value_is_named_with_its_line_and_the_fix(
    home: Home, text: str, expected: str
) -> None:
    assert home.complaint(text) == f"HOME/config.yaml:{expected}"


@pytest.mark.parametrize("key", ["paths", "writable"])
def test_no_server_gets_to_see_nanobots_own_folder_by_any_name(home: Home, key: str) -> None:
    link = home.folder.parent / "link"
    link.symlink_to(home.folder)
    for path in (
        home.folder,
        home.folder.parent,
        home.folder / "state",
        link,
        link / "sessions",
        link / "workspace" / "out",
    ):
        said = home.complaint(server("command: npx", f"{key}: [{path}]"))
        assert "nanobot's own folder" in said, path


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("NAS.lan", "nas.lan"),
        ("nas.lan:8080", "nas.lan:8080"),
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("192.168.1.7/24", "192.168.1.7/24"),
        ("::1", "::1"),
        ("[::1]:80", "[::1]:80"),
        ("FD00:0::/8", "fd00:0::/8"),
    ],
)
def test_hosts_that_are_allowed_are_kept_in_lower_case(home: Home, written: str, kept: str) -> None:
    home.write(tools("web:", f"  allow_hosts: ['{written}']"))
    assert home.load().tools.web.allow_hosts == (kept,)


@pytest.mark.parametrize(
    "rule",
    ["http://nas.lan", "nas.lan/x", "*", "1.2.3", "127.1", "nas.lan:0", "nas.lan:99999", "a b"],
)  # fmt: skip
def test_what_is_no_host_address_or_network_is_refused(home: Home, rule: str) -> None:
    said = home.complaint(tools("web:", f"  allow_hosts: ['{rule}']"))
    assert said.endswith(RULES)


def test_domains_are_kept_in_lower_case(home: Home) -> None:
    home.write(tools("web:", "  domains: [Example.org, localhost]"))
    assert home.load().tools.web.domains == ("example.org", "localhost")


@pytest.mark.parametrize(
    "domain", ["https://a.test", "*.a.test", ".a.test", "127.0.0.1", "a.test:80", ""]
)
def test_what_is_no_domain_is_refused(home: Home, domain: str) -> None:
    said = home.complaint(tools("web:", f"  domains: ['{domain}']"))
    assert "is not a domain" in said


def test_secrets_of_servers_and_search_are_known_and_plain_values_are_not(home: Home) -> None:
    home.write(
        tools(
            "web:",
            "  proxy: http://me:pw-canary@127.0.0.1:3128",
            "  search: {provider: brave, api_key: key-canary}",
            "exec:",
            "  environment: {PATH: '/usr/bin:/opt/x/bin', HF_TOKEN: hf-canary, CI: 'true'}",
        )
        + "mcp:\n  servers:\n    a:\n      command: npx\n      env:\n"
        "        NODE_ENV: production\n        DATA: /home/ada/data\n        PASSWORD: sunshine\n"
        "        DATABASE: postgres://u:db-canary@h/x\n        LANG: C.UTF-8\n"
        "    b:\n      url: https://example.org/mcp\n"
        "      headers: {Authorization: Bearer hd-canary}\n"
    )
    settings = home.load()
    assert {secret.get_secret_value() for _, secret in secrets_in(settings)} - {""} == {
        "http://me:pw-canary@127.0.0.1:3128", "key-canary", "hf-canary", "sunshine",
        "postgres://u:db-canary@h/x", "Bearer hd-canary",
    }  # fmt: skip
    assert plain_values(settings.mcp.servers["a"].env)["NODE_ENV"] == "production"
    assert plain_values(settings.mcp.servers["b"].headers) == {"Authorization": "Bearer hd-canary"}
    assert plain_values(settings.tools.exec.environment)["PATH"] == "/usr/bin:/opt/x/bin"
    assert "canary" not in repr(settings)


def test_secrets_written_out_in_a_readable_file_are_warned_of(home: Home) -> None:
    home.write(server("command: npx", "env: {API_KEY: k-canary, MODE: quiet}"), mode=0o644)
    (warning,) = home.load().warnings
    assert "mcp.servers.files.env.API_KEY: is in a file that other users can read" in warning


def test_a_search_server_of_ones_own_may_be_reached_wherever_it_is(home: Home) -> None:
    search = "  search: {provider: searxng, base_url: 'http://[::1]:8888/searx'}"
    home.write(tools("web:", "  allow_hosts: [nas.lan]", search))
    assert home.load().tools.web.reachable == ("nas.lan", "[::1]:8888")
    home.write(tools("web:", search.replace("searxng", "duckduckgo").replace("[::1]", "h")))
    assert home.load().tools.web.reachable == ()


def test_what_opens_the_sandbox_is_said_at_each_start(home: Home) -> None:
    home.write(tools("exec: {sandbox: none}") + server("command: npx", "sandbox: false"))
    exec_warning, server_warning = home.load().warnings
    assert "tools.exec.sandbox: gives commands all your permissions" in exec_warning
    assert "mcp.servers.files.sandbox: gives this server all your permissions" in server_warning


def test_a_variable_can_bring_all_servers(home: Home) -> None:
    brought = home.load({"NANOBOT_MCP__SERVERS": '{files: {command: npx, env: {A_KEY: "${K}"}}}'})
    assert plain_values(brought.mcp.servers["files"].env) == {"A_KEY": "${K}"}
    home.write(server("command: npx", "env: {A_KEY: '${K}'}"))
    settings = home.load({"K": "k-canary"})
    assert plain_values(settings.mcp.servers["files"].env) == {"A_KEY": "k-canary"}
    assert ("mcp", "servers", "files", "env", "A_KEY") in dict(secrets_in(settings))


@pytest.mark.parametrize(
    ("every", "interval"),
    [("30m", timedelta(minutes=30)), ("1h 30m", timedelta(minutes=90)), ("every 2h",
     timedelta(hours=2)), ("off", None), ("false", None)],
)  # fmt: skip
def test_the_heartbeat_has_an_interval_or_is_off(
    home: Home, every: str, interval: timedelta | None
) -> None:
    home.write(f"heartbeat: {{every: {every}}}\n")
    assert home.load().heartbeat.interval == interval


@pytest.mark.parametrize(
    ("hours", "parsed"),
    [("08:00-22:00", (time(8), time(22))), ("22:30 - 6:00", (time(22, 30), time(6))),
     ("00:00-24:00", (time(0), time(0)))],
)  # fmt: skip
def test_active_hours_may_reach_over_midnight(
    home: Home, hours: str, parsed: tuple[time, time]
) -> None:
    home.write(f"heartbeat: {{active_hours: {hours}}}\n")
    assert home.load().heartbeat.hours == parsed


def test_the_gate_gets_a_setting_for_every_kind_of_risk(home: Home) -> None:
    home.write(tools("approval: {exec: ask, mcp: never}"))
    assert home.load().tools.approval.by_kind() == {
        "send": "auto", "fetch": "auto", "exec": "ask", "persist": "auto", "schedule": "auto",
        "mcp": "never",
    }  # fmt: skip


def test_a_path_from_a_variable_is_taken(home: Home, tmp_path: Path) -> None:
    home.write(tools("exec:", "  paths: ['${NOTES}/']"))
    settings = home.load({"NOTES": str(tmp_path / "notes")})
    assert settings.tools.exec.paths == (str(tmp_path / "notes"),)
