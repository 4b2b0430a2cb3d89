"""Tools that read, change and search files, undo changes, run commands, and use the web and MCP."""
