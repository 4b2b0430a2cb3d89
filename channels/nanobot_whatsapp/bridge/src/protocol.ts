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
