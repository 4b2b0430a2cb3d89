/**
 * The line between the link (the daemon's side) and the session (WhatsApp's side).
 *
 * A session says what happens through its `Outlet` and puts messages into the spool by itself,
 * because a message has to be on disk before WhatsApp hears that we have it.
 */

import type {
  ErrorCode,
  Jid,
  ReplyData,
  ReplyError,
  Request,
  StateReport,
  Welcome,
} from './protocol.js'

/** What the link asks of WhatsApp. */
export interface Session {
  /** Begin, as the daemon wishes; called once. Trouble is a state, not an error. */
  start(welcome: Welcome): void
  /** Answer one request; rejects with `RequestFailed`. */
  request(request: Request): Promise<ReplyData>
  /** Let go of WhatsApp and bring what is in hand to disk; called once, also after no start. */
  stop(): Promise<void>
}

/** Where a session says what happens; none of these waits or fails. */
export interface Outlet {
  state(report: StateReport): void
  qr(data: string): void
  pairCode(code: string): void
  identity(lid: Jid, number: Jid): void
}

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
