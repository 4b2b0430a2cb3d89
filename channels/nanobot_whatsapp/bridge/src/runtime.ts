/** What every part is given: the clock and the log. */

import { writeSync } from 'node:fs'
import type { SocketConfig } from 'baileys'
import type { LogLevel } from './protocol.js'

/*
 * The way to the time: nothing here asks for it anywhere else, so that tests need not wait.
 */

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

/*
 * Where the helper's words for the log go: to the daemon while there is one, else to stderr.
 *
 * What always holds: nothing that Baileys or libsignal hands over besides its sentence is passed
 * on, because they hand over messages and keys. stdout stays empty.
 */

const LONGEST = 2000
const LONGEST_FOREIGN = 200

export interface Log {
  debug(message: string): void
  info(message: string): void
  warning(message: string): void
  error(message: string): void
}

/** Takes a message, or says with false that it cannot. */
export type Sink = (level: LogLevel, message: string) => boolean

/** Messages go to the first of the sinks that takes them. */
export class SinkLog implements Log {
  constructor(private readonly sinks: readonly Sink[]) {}

  debug(message: string): void {
    this.#say('debug', message)
  }

  info(message: string): void {
    this.#say('info', message)
  }

  warning(message: string): void {
    this.#say('warning', message)
  }

  error(message: string): void {
    this.#say('error', message)
  }

  #say(level: LogLevel, message: string): void {
    const line = message.slice(0, LONGEST)
    this.sinks.some((sink) => sink(level, line))
  }
}

/** The last resort; debug messages are not worth it. */
export const stderrSink: Sink = (level, message) => {
  if (level === 'debug') return true
  try {
    writeSync(2, `${level}: ${message}\n`)
  } catch {
    // Whoever read stderr is gone or does not read; there is nowhere left to say so.
  }
  return true
}

/** Baileys' logger: its sentences at debug, its warnings and errors included, and nothing else. */
export function baileysLogger(log: Log): SocketConfig['logger'] {
  const say = (value: unknown, message?: string): void => {
    log.debug(`baileys: ${sentence(value, message)}`)
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
    log.debug(`console: ${sentence(null, values[0])}`)
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
