"""Messages in, messages out, and the journal that neither gets past."""
