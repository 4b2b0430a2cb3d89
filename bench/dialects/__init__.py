"""Every shape of a model server that a conversation must survive; see `__main__`."""
