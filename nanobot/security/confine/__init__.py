"""The program that shuts commands in: it runs beside nanobot and knows nothing of it.

It uses the standard library alone, for its second half runs inside the sandbox, where nothing else
is. `start` is run outside: it looks where repositories are, leaves a watcher behind and becomes the
sandbox. `stage` is run inside, before the command: it protects what must not change, gives up every
power it has and becomes the command. Each command pays for both, so imports are few: values are
named tuples and not dataclasses, whose import alone takes as long as everything here.
"""
