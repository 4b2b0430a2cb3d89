/**
 * What every part is given: the clock and the log.
 *
 * Invariant: of what Baileys and libsignal log, only the sentence is kept, because the objects that
 * come with it hold messages and keys. stdout stays empty.
 */

import { writeSync } from 'node:fs'
import type { SocketConfig } from 'baileys'
import type { LogLevel } from './protocol.js'

const LONGEST_FOREIGN = 200

/** The time; nothing asks for it anywhere else, so that tests need not wait. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number
  /** Call `action` once after `ms` milliseconds, unless the returned function is called first. */
  after(ms: number, action: () => void): () => void
}

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, action) {
    const timer = setTimeout(action, ms)
    return () => {
      clearTimeout(timer)
    }
  },
}

export type Log = (level: LogLevel, message: string) => void

/** The log while there is no daemon; debug messages are dropped. */
export const stderrLog: Log = (level, message) => {
  if (level === 'debug') return
  try {
    writeSync(2, `${level}: ${message}\n`)
  } catch {
    // stderr is closed or full; there is nowhere left to report to.
  }
}

/** Baileys' logger: its sentences at debug, its warnings and errors included, and nothing else. */
export function baileysLogger(log: Log): SocketConfig['logger'] {
  const say = (value: unknown, message?: string): void => {
    log('debug', `baileys: ${sentence(value, message)}`)
  }
  const quiet = (): void => undefined
  return {
    level: 'info',
    child: () => baileysLogger(log),
    trace: quiet,
    debug: quiet,
    info: say,
    warn: say,
    error: say,
  }
}

/** libsignal prints whole sessions, keys included: keep the sentence, and off the terminal. */
export function quietConsole(log: Log): void {
  const say = (...values: readonly unknown[]): void => {
    log('debug', `console: ${sentence(null, values[0])}`)
  }
  const methods = ['debug', 'dir', 'error', 'info', 'log', 'table', 'trace', 'warn'] as const
  for (const method of methods) globalThis.console[method] = say
}

function sentence(value: unknown, message: unknown): string {
  const said = [message, value].find((each) => typeof each === 'string') ?? '(no words)'
  return said.slice(0, LONGEST_FOREIGN) + reason(value).slice(0, LONGEST_FOREIGN)
}

/** What went wrong, of an error in the usual places of a log object. */
function reason(value: unknown): string {
  if (value instanceof Error) return `: ${value.message}`
  if (typeof value !== 'object' || value === null) return ''
  const fields: Readonly<Record<string, unknown>> = { ...value }
  const error = fields['err'] ?? fields['error']
  return error instanceof Error ? `: ${error.message}` : ''
}

/** Remove the oldest entry if there are more than `most`; to be called after each addition. */
export function keepNewest(kept: Map<string, unknown> | Set<string>, most: number): void {
  const oldest = kept.keys().next()
  if (kept.size > most && !oldest.done) kept.delete(oldest.value)
}
