/**
 * The protocol between the helper and the daemon, version 1: JSON, one object per line.
 *
 * This module holds its values and reads the daemon's lines; `link.ts` decides who says what when.
 * ../README.md describes it for people.
 */

import { isUtf8 } from 'node:buffer'

const NEWLINE = 0x0a

export const PROTOCOL = 1

/** Bytes of the longest line, with its newline. */
export const MAX_LINE = 1024 * 1024

/** Unconfirmed events that may be on the wire. */
export const WINDOW = 64

/** Characters of the longest id, of whatever it is. */
export const LONGEST_ID = 256

/** A full WhatsApp id without the device part: a number, a LID or a group. */
export type Jid = string

export interface EventMedia {
  readonly kind: MediaRef['kind']
  readonly mime: string
  readonly name: string
  /** Bytes as the sender states them; 0 if unknown. */
  readonly size: number
  readonly ref: MediaRef
}

export interface EventQuote {
  readonly id: string
  readonly sender: Jid
  readonly text: string
  /** We sent the quoted message. */
  readonly ours: boolean
}

/** A message as it came in. */
export interface MessageEvent {
  readonly kind: 'message'
  readonly id: string
  readonly chat: Jid
  readonly sender: Jid
  /** The same person's other id (number or LID), '' if not known. */
  readonly alt: Jid
  readonly name: string
  /** Unix seconds. */
  readonly at: number
  readonly from_me: boolean
  readonly group: boolean
  readonly title: string
  /** It waited at WhatsApp while we were not connected. */
  readonly offline: boolean
  readonly text: string
  readonly mentions: readonly Jid[]
  readonly mentions_me: boolean
  readonly quote: EventQuote | null
  readonly forwarded: boolean
  readonly media: EventMedia | null
  readonly notes: readonly string[]
  /** The id of the message that this one edits, '' if it edits none. */
  readonly edits: string
  /** The id of the message that its sender took back, '' for none. */
  readonly deletes: string
  /** What they marked the quoted message with, 'none' where they took the mark away, '' if this is
   * no such mark. */
  readonly reaction: string
  /** It asks for nothing (a call). */
  readonly unanswered: boolean
  /** The field of the protocol that holds a kind we cannot show, '' if there is none. */
  readonly unknown: string
}

/**
 * Two events with the same key are the same event. The sender chooses a message's id, so the sender
 * is part of the key: else a member of a group could make another's message look known.
 */
export function eventKey(event: Pick<MessageEvent, 'chat' | 'sender' | 'id' | 'edits'>): string {
  return JSON.stringify([event.chat, event.sender, event.id, event.edits])
}

/** Whether this can be the id of a message: printable ASCII without spaces, and not too long. */
export function isMessageId(text: string): boolean {
  return text.length <= LONGEST_ID && /^[!-~]+$/.test(text)
}

export type State =
  'need_pairing' | 'connecting' | 'open' | 'backoff' | 'logged_out' | 'replaced' | 'banned'

export interface Me {
  readonly number: Jid
  readonly lid: Jid
  readonly name: string
}

export interface StateReport {
  readonly state: State
  readonly detail: string
  /** Seconds until the next attempt, null if none is planned. */
  readonly retry_in: number | null
  readonly me: Me | null
}

export interface Hello {
  readonly bridge: string
  readonly baileys: string
  readonly node: string
  readonly pid: number
}

export type LogLevel = 'debug' | 'info' | 'warning' | 'error'

export type ErrorCode = 'later' | 'unknown' | 'refused'

export interface ReplyError {
  readonly code: ErrorCode
  readonly message: string
  /** Seconds; only with 'later'. */
  readonly retry_after?: number
}

export type ReplyData = Readonly<Record<string, string | number | boolean>>

/** What the helper says. */
export type ToDaemon =
  | ({ readonly type: 'hello'; readonly protocol: typeof PROTOCOL } & Hello)
  | ({ readonly type: 'state' } & StateReport)
  | { readonly type: 'qr'; readonly data: string }
  | { readonly type: 'pair_code'; readonly code: string }
  | { readonly type: 'event'; readonly seq: number; readonly event: MessageEvent }
  | { readonly type: 'identity'; readonly lid: Jid; readonly number: Jid }
  | { readonly type: 'reply'; readonly id: number; readonly ok: true; readonly data: ReplyData }
  | {
      readonly type: 'reply'
      readonly id: number
      readonly ok: false
      readonly error: ReplyError
    }
  | { readonly type: 'pong'; readonly id: number }
  | { readonly type: 'log'; readonly level: LogLevel; readonly message: string }

/** A line that no daemon would send. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError'
}

/** Gives the value if it is as it should be, else throws a `ProtocolError` that names the field. */
type Reader<T> = (value: unknown, name: string) => T

type Shape = Readonly<Record<string, Reader<unknown>>>

type Read<S extends Shape> = { readonly [K in keyof S]: ReturnType<S[K]> }

const text: Reader<string> = (value, name) => {
  if (typeof value === 'string') return value
  throw new ProtocolError(`"${name}" is not text`)
}

const flag: Reader<boolean> = (value, name) => {
  if (typeof value === 'boolean') return value
  throw new ProtocolError(`"${name}" is not true or false`)
}

const count: Reader<number> = (value, name) => {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
  throw new ProtocolError(`"${name}" is not a whole number from 0`)
}

const fields: Reader<Readonly<Record<string, unknown>>> = (value, name) => {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value }
  throw new ProtocolError(`"${name}" is not an object`)
}

function oneOf<T extends string>(...allowed: readonly T[]): Reader<T> {
  return (value, name) => {
    const found = allowed.find((each) => each === value)
    if (found !== undefined) return found
    throw new ProtocolError(`"${name}" is not one of ${allowed.join(', ')}`)
  }
}

/** What may be absent or null, and what it is then. */
function maybe<T, D>(read: Reader<T>, otherwise: D): Reader<T | D> {
  return (value, name) => ((value ?? null) === null ? otherwise : read(value, name))
}

/** An object with these fields; more of them are no error, a newer daemon may say more. */
function object<S extends Shape>(shape: S): Reader<Read<S>> {
  return (value, name) => {
    const given = fields(value, name)
    const read = Object.entries(shape).map(([key, reader]) => [key, reader(given[key], key)])
    return Object.fromEntries(read) as Read<S>
  }
}

const LINES = {
  welcome: object({
    protocol: count,
    pair: oneOf('none', 'qr', 'code'),
    /** Digits, for pair 'code'; else ''. */
    number: maybe(text, ''),
    read_receipts: flag,
    online: flag,
  }),
  goodbye: object({ reason: text }),
  /** Every event up to this number is durable at the daemon's. */
  ack: object({ seq: count }),
  ping: object({ id: count }),
}

/** What is needed to fetch a file later; the daemon keeps it for us. Bytes are base64. */
const mediaRef = object({
  kind: oneOf('image', 'audio', 'voice', 'video', 'document', 'sticker'),
  /** Path on WhatsApp's media host. */
  path: text,
  url: text,
  key: text,
  sha256: text,
})

export type MediaRef = ReturnType<typeof mediaRef>

const REQUESTS = {
  send: object({
    to: text,
    id: text,
    text,
    /** The id of a message of ours that this text takes the place of, '' for none. */
    edits: maybe(text, ''),
    quote: maybe(object({ id: text, sender: text, text, from_me: flag }), null),
    file: maybe(
      object({
        path: text,
        kind: oneOf('image', 'audio', 'voice', 'video', 'document'),
        mime: text,
        name: text,
      }),
      null,
    ),
  }),
  download: object({ ref: mediaRef, limit: count }),
  typing: object({ to: text, on: flag }),
  read: object({ chat: text, id: text, sender: text }),
}

type LineReaders = typeof LINES
type Requests = typeof REQUESTS

export type Welcome = ReturnType<LineReaders['welcome']>

export type SendParams = ReturnType<Requests['send']>

export type Request = {
  readonly [M in keyof Requests]: {
    readonly method: M
    readonly params: ReturnType<Requests[M]>
  }
}[keyof Requests]

/** What the daemon says; a request that makes no sense is a `bad_request`. */
export type FromDaemon =
  | {
      readonly [T in keyof LineReaders]: { readonly type: T } & ReturnType<LineReaders[T]>
    }[keyof LineReaders]
  | { readonly type: 'request'; readonly id: number; readonly request: Request }
  | { readonly type: 'bad_request'; readonly id: number; readonly reason: string }
  | { readonly type: 'unknown'; readonly name: string }

/** A line as one of the daemon's values; throws a `ProtocolError` if it is none. */
export function parseLine(line: string): FromDaemon {
  const given = fields(json(line), 'line')
  const type = text(given['type'], 'type')
  if (type === 'request') return request(given)
  if (!Object.hasOwn(LINES, type)) return { type: 'unknown', name: type }
  const read = LINES[type as keyof LineReaders]
  return { type, ...read(given, type) } as FromDaemon
}

function json(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    throw new ProtocolError('a line is not JSON')
  }
}

/** A wrong request costs itself an answer and nothing else, as long as it has an id. */
function request(given: Readonly<Record<string, unknown>>): FromDaemon {
  const id = count(given['id'], 'id')
  try {
    const method = text(given['method'], 'method')
    if (!Object.hasOwn(REQUESTS, method)) {
      throw new ProtocolError(`there is no method ${JSON.stringify(method)}`)
    }
    const params = REQUESTS[method as keyof Requests](given['params'], 'params')
    return { type: 'request', id, request: { method, params } as Request }
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    return { type: 'bad_request', id, reason: error.message }
  }
}

/** Bytes in, lines out: UTF-8, ended by a newline, at most `MAX_LINE` bytes with it. */
export class Lines {
  #rest = Buffer.alloc(0);

  /** The lines that `chunk` completes; a `ProtocolError` for one that is too long or no UTF-8. */
  *feed(chunk: Buffer): Generator<string> {
    let rest = Buffer.concat([this.#rest, chunk])
    for (let size = rest.indexOf(NEWLINE) + 1; size > 0; size = rest.indexOf(NEWLINE) + 1) {
      yield decoded(rest.subarray(0, size))
      rest = rest.subarray(size)
    }
    if (rest.length > MAX_LINE) throw new ProtocolError('a line is too long')
    this.#rest = rest
  }
}

function decoded(line: Buffer): string {
  if (line.length > MAX_LINE) throw new ProtocolError('a line is too long')
  if (!isUtf8(line)) throw new ProtocolError('a line is not UTF-8')
  return line.toString()
}
