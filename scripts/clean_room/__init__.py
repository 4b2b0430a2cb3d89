"""Clean Debian roots in which the steps on a new machine are really run.

Invariants: a root contains nothing of this machine, except that `/run/lent` has settings for
package sources while a command runs there. Nothing of that stays in it."""
