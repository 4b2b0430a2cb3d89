/** What goes wrong: requests that failed, and what Baileys' errors carry besides their message. */

import type { ErrorCode, ReplyError } from './protocol.js'

/** A request that was not carried out; the message is for people. */
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
    const { code, message, retryAfter } = this
    return retryAfter === null ? { code, message } : { code, message, retry_after: retryAfter }
  }
}

/** WhatsApp's number for why it refused something; 0 if the error is not WhatsApp's answer. */
export function refusalOf(error: unknown): number {
  const data = fieldOf(error, 'data')
  const code = typeof data === 'number' ? data : Number(fieldOf(fieldOf(data, 'attrs'), 'code'))
  return Number.isSafeInteger(code) ? code : 0
}

/** How a connection ended. */
export interface Closing {
  /** WhatsApp's number for it; 0 if it was not WhatsApp that ended the connection. */
  readonly code: number
  /** In words, for people. */
  readonly words: string
  /** Seconds that WhatsApp wants us to stay away, 0 if it does not say. */
  readonly expire: number
  /** Our disk refused to keep something. */
  readonly disk: boolean
}

/** How WhatsApp, or something in between, has ended a connection. */
export function closingOf(error: unknown): Closing {
  const data = fieldOf(error, 'data')
  const expire = Number(fieldOf(data, 'expire'))
  const code = fieldOf(fieldOf(error, 'output'), 'statusCode')
  return {
    // Where the connection itself failed the number is a guess, or that of a proxy in between.
    code: typeof code === 'number' && !(data instanceof Error) ? code : 0,
    words: wordsOf(error),
    expire: expire > 0 && Number.isFinite(expire) ? expire : 0,
    disk: false,
  }
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function fieldOf(value: unknown, name: string): unknown {
  return (Object(value) as Readonly<Record<string, unknown>>)[name]
}
