/**
 * The protocol between the helper and the daemon, version 1: JSON, one object per line.
 *
 * This module holds its values; `parse.ts` reads the daemon's lines and `link.ts` decides who says
 * what when. docs/channels/whatsapp-bridge.md describes it for people.
 */

export const PROTOCOL = 1

/** Bytes of the longest line, with its newline. */
export const MAX_LINE = 1024 * 1024

/** Unconfirmed events that may be on the wire. */
export const WINDOW = 64

/** Characters of the longest id, of whatever it is. */
export const LONGEST_ID = 256

/** A full WhatsApp id without the device part: a number, a LID or a group. */
export type Jid = string

export type MediaKind = 'image' | 'audio' | 'voice' | 'video' | 'document' | 'sticker'

/** What is needed to fetch a file later; only the helper understands it. */
export type MediaRef = Readonly<Record<string, string | number>>

export interface EventMedia {
  readonly kind: MediaKind
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
  /** What they marked the quoted message of ours with, '' if this is no such mark. */
  readonly reaction: string
  /** The field of the protocol that holds a kind we cannot show, '' if there is none. */
  readonly unknown: string
}

/** Whatever goes through the spool. */
export type BridgeEvent = MessageEvent

/**
 * Two events with the same key are the same event. Whoever sends a message chooses its id, so that
 * the sender is a part of it: else a member of a group could pass off a message as known.
 */
export function eventKey(event: Pick<BridgeEvent, 'chat' | 'sender' | 'id' | 'edits'>): string {
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
  | { readonly type: 'event'; readonly seq: number; readonly event: BridgeEvent }
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

export type Pair = 'none' | 'qr' | 'code'

export interface Welcome {
  readonly pair: Pair
  /** Digits, for pair 'code'; else ''. */
  readonly number: string
  readonly read_receipts: boolean
  readonly online: boolean
}

export type OutFileKind = 'image' | 'audio' | 'voice' | 'video' | 'document'

export interface SendParams {
  readonly to: Jid
  readonly id: string
  readonly text: string
  readonly quote: {
    readonly id: string
    readonly sender: Jid
    readonly text: string
    readonly from_me: boolean
  } | null
  readonly file: {
    readonly path: string
    readonly kind: OutFileKind
    readonly mime: string
    readonly name: string
  } | null
}

export type Request =
  | { readonly method: 'send'; readonly params: SendParams }
  | {
      readonly method: 'download'
      readonly params: { readonly ref: MediaRef; readonly limit: number }
    }
  | { readonly method: 'typing'; readonly params: { readonly to: Jid; readonly on: boolean } }
  | {
      readonly method: 'read'
      readonly params: { readonly chat: Jid; readonly id: string; readonly sender: Jid }
    }

/** What the daemon says; a request that makes no sense is a `bad_request`. */
export type FromDaemon =
  | ({ readonly type: 'welcome'; readonly protocol: number } & Welcome)
  | { readonly type: 'goodbye'; readonly reason: string }
  | { readonly type: 'ack'; readonly seq: number }
  | { readonly type: 'request'; readonly id: number; readonly request: Request }
  | { readonly type: 'bad_request'; readonly id: number; readonly reason: string }
  | { readonly type: 'ping'; readonly id: number }
  | { readonly type: 'unknown'; readonly name: string }

/*
 * Reading the daemon's lines.
 *
 * What always holds: a line is either one of the values of `FromDaemon` or a `ProtocolError`. What
 * is unknown in type or field is no error, because a newer daemon may say more than we know.
 */

/** A line that no daemon would send. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError'
}

/** What a request lacks. */
class BadParameter extends Error {
  override readonly name = 'BadParameter'
}

type Fields = Readonly<Record<string, unknown>>

export function parseLine(line: string): FromDaemon {
  const fields = object(json(line))
  if (fields === null) throw new ProtocolError('a line is not a JSON object')
  try {
    return message(fields)
  } catch (error) {
    if (error instanceof BadParameter) throw new ProtocolError(error.message)
    throw error
  }
}

function message(fields: Fields): FromDaemon {
  const type = text(fields, 'type')
  switch (type) {
    case 'welcome':
      return welcome(fields)
    case 'goodbye':
      return { type, reason: text(fields, 'reason') }
    case 'ack':
      return { type, seq: count(fields, 'seq') }
    case 'ping':
      return { type, id: count(fields, 'id') }
    case 'request':
      return request(fields)
    default:
      return { type: 'unknown', name: type }
  }
}

function welcome(fields: Fields): FromDaemon {
  return {
    type: 'welcome',
    protocol: count(fields, 'protocol'),
    pair: oneOf<Pair>(fields, 'pair', ['none', 'qr', 'code']),
    number: fields['number'] === undefined ? '' : text(fields, 'number'),
    read_receipts: flag(fields, 'read_receipts'),
    online: flag(fields, 'online'),
  }
}

/** A wrong request costs itself an answer and nothing else, as long as it has an id. */
function request(fields: Fields): FromDaemon {
  const id = count(fields, 'id')
  try {
    const params = part(fields, 'params')
    return { type: 'request', id, request: methodOf(text(fields, 'method'), params) }
  } catch (error) {
    if (!(error instanceof BadParameter)) throw error
    return { type: 'bad_request', id, reason: error.message }
  }
}

function methodOf(method: string, params: Fields): Request {
  switch (method) {
    case 'send':
      return { method, params: sendParams(params) }
    case 'download':
      return { method, params: { ref: mediaRef(params), limit: count(params, 'limit') } }
    case 'typing':
      return { method, params: { to: text(params, 'to'), on: flag(params, 'on') } }
    case 'read':
      return {
        method,
        params: {
          chat: text(params, 'chat'),
          id: text(params, 'id'),
          sender: text(params, 'sender'),
        },
      }
    default:
      throw new BadParameter(`there is no method ${JSON.stringify(method)}`)
  }
}

function sendParams(params: Fields): SendParams {
  return {
    to: text(params, 'to'),
    id: text(params, 'id'),
    text: text(params, 'text'),
    quote: quote(params),
    file: file(params),
  }
}

function quote(params: Fields): SendParams['quote'] {
  if (isAbsent(params['quote'])) return null
  const fields = part(params, 'quote')
  return {
    id: text(fields, 'id'),
    sender: text(fields, 'sender'),
    text: text(fields, 'text'),
    from_me: flag(fields, 'from_me'),
  }
}

const FILE_KINDS: readonly OutFileKind[] = ['image', 'audio', 'voice', 'video', 'document']

function file(params: Fields): SendParams['file'] {
  if (isAbsent(params['file'])) return null
  const fields = part(params, 'file')
  return {
    path: text(fields, 'path'),
    kind: oneOf(fields, 'kind', FILE_KINDS),
    mime: text(fields, 'mime'),
    name: text(fields, 'name'),
  }
}

function mediaRef(params: Fields): MediaRef {
  const ref: Record<string, string | number> = {}
  for (const [key, value] of Object.entries(part(params, 'ref'))) {
    if (typeof value !== 'string' && typeof value !== 'number') {
      throw new BadParameter('"ref" holds something else than text and numbers')
    }
    ref[key] = value
  }
  return ref
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null
}

function part(fields: Fields, key: string): Fields {
  const value = object(fields[key])
  if (value === null) throw new BadParameter(`"${key}" is not an object`)
  return value
}

function text(fields: Fields, key: string): string {
  const value = fields[key]
  if (typeof value !== 'string') throw new BadParameter(`"${key}" is not text`)
  return value
}

function flag(fields: Fields, key: string): boolean {
  const value = fields[key]
  if (typeof value !== 'boolean') throw new BadParameter(`"${key}" is not true or false`)
  return value
}

function count(fields: Fields, key: string): number {
  const value = fields[key]
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new BadParameter(`"${key}" is not a whole number from 0`)
  }
  return value
}

function oneOf<T extends string>(fields: Fields, key: string, allowed: readonly T[]): T {
  const value = allowed.find((each) => each === fields[key])
  if (value === undefined) throw new BadParameter(`"${key}" is none of ${allowed.join(', ')}`)
  return value
}

function object(value: unknown): Fields | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null
  return value as Fields
}

function json(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    throw new ProtocolError('a line is not JSON')
  }
}

/* Bytes in, lines out: UTF-8, ended by a newline, at most `MAX_LINE` bytes with it. */

const NEWLINE = 0x0a

export class Lines {
  #rest: Buffer[] = []
  #length = 0;

  /** The lines that `chunk` completes; a `ProtocolError` for one that is too long or no UTF-8. */
  *feed(chunk: Buffer): Generator<string> {
    let start = 0
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      this.#keep(chunk.subarray(start, end + 1))
      yield this.#take()
      start = end + 1
    }
    this.#keep(chunk.subarray(start))
  }

  #keep(part: Buffer): void {
    this.#rest.push(part)
    this.#length += part.length
    if (this.#length > MAX_LINE) throw new ProtocolError('a line is too long')
  }

  #take(): string {
    const line = Buffer.concat(this.#rest)
    this.#rest = []
    this.#length = 0
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(line)
    } catch {
      throw new ProtocolError('a line is not UTF-8')
    }
  }
}
