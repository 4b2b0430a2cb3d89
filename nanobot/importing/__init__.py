"""Import of another program's home as a new home, without loss."""
