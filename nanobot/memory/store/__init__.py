"""The files of one memory: read and written in one place, guarded, with a version each time."""
