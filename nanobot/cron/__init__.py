"""Work at set times: jobs that somebody scheduled, and the heartbeat.

`schedule` reads when something is due, `job` is the value, `planning` decides (all pure); `codec`
and `store` keep jobs in a file, `service` runs them, `wishes` and `wording` read and tell, `tool`,
`commands` and `operations` are the ways in. `heartbeat` looks at HEARTBEAT.md from time to time.
"""
