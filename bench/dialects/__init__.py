"""Every shape of a model server that a conversation must survive. See `__main__`."""
