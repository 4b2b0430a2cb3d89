"""The agent: the turn (`loop`), where messages wait (`lobby`), a turn's life (`running`, `turns`),
the ReAct loop (`runner`), the prompt (`context`, `system_prompt`, `window`).
"""
