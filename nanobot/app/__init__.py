"""The composition root, which builds the object graph. `gateway.Gateway` lists the parts of a
nanobot and runs them. `base` has the shared parts, `memory`, `tools` and `services` (the agent and
its surroundings) build a part each, `operations` and `commands` the interfaces."""
