"""A shell for the agent: commands in a sandbox, waited for or in the background.

`tools` is what a model sees and what may run, `processes` whose it is, `process` one command from
its launch to its end.
"""
