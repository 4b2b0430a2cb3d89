"""Text as lines of facts: what differs, how changes are put into a file as it now is. Pure."""
