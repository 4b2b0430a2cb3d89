"""Set-up with a person: the same steps in the terminal (`nanobot onboard`) and on the page."""
