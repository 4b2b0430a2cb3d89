"""`python -m nanobot` is the same as `nanobot`."""

from __future__ import annotations

import sys

from nanobot.cli.main import main

sys.exit(main())
