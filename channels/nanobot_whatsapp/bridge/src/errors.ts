/** What goes wrong: requests that failed, and what Baileys' errors carry beside their words. */

import type { ErrorCode, ReplyError } from './protocol.js'

/** A request that was not done, in words for people. */
export class RequestFailed extends Error {
  override readonly name = 'RequestFailed'

  constructor(
    readonly code: ErrorCode,
    message: string,
    /** Seconds; only meant with 'later'. */
    readonly retryAfter: number | null = null,
  ) {
    super(message)
  }

  get reply(): ReplyError {
    return this.retryAfter === null
      ? { code: this.code, message: this.message }
      : { code: this.code, message: this.message, retry_after: this.retryAfter }
  }
}

/** WhatsApp's number for why it refused something; 0 if the error is not WhatsApp's answer. */
export function refusalOf(error: unknown): number {
  const data = fieldOf(error, 'data')
  const code = typeof data === 'number' ? data : Number(fieldOf(fieldOf(data, 'attrs'), 'code'))
  return Number.isSafeInteger(code) ? code : 0
}

/** WhatsApp's number for the end of a connection; 0 if it was not WhatsApp that ended it. */
export function closingOf(error: unknown): number {
  // Where the connection itself failed the number is a guess, or that of a proxy in between.
  if (fieldOf(error, 'data') instanceof Error) return 0
  const code = fieldOf(fieldOf(error, 'output'), 'statusCode')
  return typeof code === 'number' ? code : 0
}

/** Seconds that WhatsApp shuts the account out for; 0 if it does not say. */
export function expireOf(error: unknown): number {
  const seconds = Number(fieldOf(fieldOf(error, 'data'), 'expire'))
  return Number.isFinite(seconds) && seconds > 0 ? seconds : 0
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function fieldOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined
  return Object.entries(value).find(([key]) => key === name)?.[1]
}
