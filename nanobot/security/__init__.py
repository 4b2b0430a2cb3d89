"""The doors to the outside: what code enforces, whatever a model has been talked into."""
