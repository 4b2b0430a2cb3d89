"""A shell for the agent: commands in a sandbox, in the foreground or background.

`tools` has the tools and their checks, `processes` the owners of commands, `process` one command
from launch to end."""
