"""One nanobot on several machines: journal and documents in PostgreSQL.

psycopg is an extra and is imported here alone, so nothing else imports this room unless a team's
database is configured.
"""
