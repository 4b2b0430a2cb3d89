"""The tools that work on files: reading, changing, searching, and undoing what was changed."""
