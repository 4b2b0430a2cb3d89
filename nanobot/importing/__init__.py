"""Taking over what other programs kept: a home of theirs becomes one of ours, nothing is lost."""
