"""`nanobot onboard`: from nothing to a first reply, and later from one setting to another.

What always holds: until the person has seen what will be written and said yes, nothing is; then
each file is replaced as a whole. Secrets go into secrets.env and nowhere else. What was not asked
for stays in config.yaml byte for byte.
"""
