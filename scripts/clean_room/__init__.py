"""Clean Debian roots in which what a new machine would do is done for real.

Invariants: nothing of this machine is in a root save what `lent` puts below `/run/lent` for
as long as a command runs there (where packages come from), and nothing of that stays in it.
"""
