"""`nanobot service`: nanobot as a unit of systemd, the user's own or the machine's."""
