"""Single files of memory: appended to, read as a person left them, redacted."""
