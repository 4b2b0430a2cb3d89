"""The command line. Nothing heavy may be imported on the way to a running gateway."""
