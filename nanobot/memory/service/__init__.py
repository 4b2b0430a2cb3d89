"""What people do with memory, by slash command and on the command line."""
