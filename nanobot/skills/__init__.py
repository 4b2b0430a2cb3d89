"""Skills: folders with a SKILL.md that tell the model how to do something.

Invariant: no text of a workspace skill reaches a model before the owner has enabled exactly
these files; any change of one of them, by anyone, makes the skill inert until it is enabled
again. Built-in skills are part of the program.

`folder` says what a skill is and reads one, `loader` finds those of a home and knows what the owner
enabled, `prompt` is what the model sees, `service` what the owner does.
"""
