"""One nanobot on several machines: journal and documents in PostgreSQL.

psycopg is an extra that only this room imports, so other code imports the room only if a team's
database is configured."""
