"""The embedded offline model: rules instead of a language model, with no key and no network."""
