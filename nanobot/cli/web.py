"""`nanobot web`: the page in a browser. It asks the running gateway, or hosts one until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import sys

from nanobot.cli.client import REJOIN_SECONDS, Data
from nanobot.cli.command import Commands, Options, Parser, print_json, print_text, table
from nanobot.cli.gateway import open_client
from nanobot.errors import ConnectionLost, NoGateway

_HERE = "nanobot runs here until you press Ctrl-C.\n"


def add_web(web: Parser) -> None:
    web.set_defaults(run=open_page)
    web.option(
        "--person", "ID", "the account to sign in as, such as telegram:12345 (default: yours)"
    )
    web.flag("--setup", "print a link that also lets you set up the model and the channels")
    web.flag("--no-open", "only print the link")
    web.json()
    what = Commands(web)
    what.operation("list", "list signed-in browsers", "web.list", format_browsers)
    revoke = what.operation("revoke", "sign browsers out", "web.revoke")
    revoke.argument("id", "ID", "a browser's id in `web list`, an account, or all")


def open_page(options: Options) -> int:
    with open_client(options.home) as client:
        data = client.ask("web.link", {"account": options.person, "setup": options.setup})
        _show_link(options, Data(data) if isinstance(data, dict) else Data())
        if client.is_hosted:
            if not options.json:
                print_text(_HERE, sys.stderr)
            # Wait until the gateway ends for good. After a restart, wait for the next one.
            with contextlib.suppress(ConnectionLost, NoGateway, KeyboardInterrupt):
                while True:
                    if client.fileno() < 0:
                        client.reconnect(REJOIN_SECONDS)
                    select.select([client], [], [])
                    client.read_events()
    return 0


def _show_link(options: Options, data: Data) -> None:
    if options.json:
        print_json(data)
        return
    url = data.field("url")
    sys.stdout.write(f"{url}\n")
    minutes = data.number("seconds") // 60
    print_text(f"The link can be used once, within {minutes} minutes.\n")
    if data.get("is_public"):
        import segno

        segno.make(url, error="l").terminal(border=2, compact=True)
    # Without a screen, xdg-open would start a browser in the terminal.
    has_screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not options.no_open and has_screen and sys.stdout.isatty():
        open_browser(url)


def open_browser(url: str) -> None:
    """Open the desktop's default browser, if there is xdg-open."""
    from subprocess import DEVNULL

    from nanobot import programs

    if opener := programs.find("xdg-open"):
        variables = (
            "BROWSER|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|(XDG|DBUS|DESKTOP|KDE|GNOME)_[A-Z_]+"
        )
        launch = programs.Launch((opener, url), programs.environment(variables))
        with contextlib.suppress(OSError):
            launch.popen(stdin=DEVNULL, stdout=DEVNULL)


def format_browsers(data: Data) -> str:
    rows = [
        (*one.fields("id", "account"), one.minute("seen_at"), one.field("browser"))
        for one in data.records("sessions")
    ]
    return table(rows, "id", "account", "last used", "browser") or "No browser is signed in.\n"
