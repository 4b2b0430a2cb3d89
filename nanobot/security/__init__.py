"""Access to the outside, enforced by code regardless of the model's behaviour."""
