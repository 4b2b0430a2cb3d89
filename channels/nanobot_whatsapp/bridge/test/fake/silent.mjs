/** Quiet where Baileys and libsignal would talk on the fake's side. */

const nothing = () => undefined

/** A logger that says nothing. */
export const SILENT = {
  level: 'silent',
  child: () => SILENT,
  trace: nothing,
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: nothing,
}

/** libsignal prints whole sessions to the console of its process; from now on it does not. */
export function hush() {
  for (const level of ['log', 'info', 'warn', 'error']) globalThis.console[level] = nothing
}
