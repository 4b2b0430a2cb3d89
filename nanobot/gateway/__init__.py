"""The daemon: its life, the core's side of the channel port, delivery, supervision, control."""
