"""Work at set times: scheduled jobs and the heartbeat.

`schedule` computes due times, `job` holds jobs and their runs, `service` runs them, and `tool` has
the tool, the commands and the operations. `heartbeat` checks HEARTBEAT.md at intervals."""
