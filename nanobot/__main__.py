"""`python -P -m nanobot` is the same as `nanobot`. Without `-P`, Python looks in the current folder
first, and could find another nanobot in someone else's folder."""

from __future__ import annotations

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from nanobot.cli.main import main

sys.exit(main())
