"""Work at set times: jobs that somebody scheduled, and the heartbeat.

`schedule` reads when something is due, `job` holds jobs and when they run, `service` runs them,
`tool` has the ways in for the agent, a chat and the command line. `heartbeat` looks at HEARTBEAT.md
from time to time.
"""
