"""Skills: folders with a SKILL.md of instructions for the model.

Invariant: no text of a workspace skill reaches a model before the owner has enabled exactly these
files. Any later change of a file disables the skill until the owner enables it again. Built-in
skills are part of the program.

`folder` defines and reads a skill, `loader` finds the skills of a home and their approved state,
`prompt` has the model's view, `service` the owner's actions."""
