"""What a person types. Nothing heavy may be imported on the way to a running gateway."""
