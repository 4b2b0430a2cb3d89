/**
 * Sending: a message counts as sent when WhatsApp's server has confirmed it.
 *
 * Invariant: a message is in the sent store before it goes out, so a phone that cannot read
 * it gets it again, even after a restart; a failure before the message was handed to the connection
 * is 'later' or 'refused', one after it 'unknown'. Therefore all that has to be asked of WhatsApp
 * beforehand (members, devices, keys) is asked first, and on its own.
 */

import { access, constants } from 'node:fs/promises'
import { isAbsolute } from 'node:path'
import {
  type AnyMediaMessageContent,
  type AnyMessageContent,
  type BinaryNode,
  generateWAMessage,
  type GroupMetadata,
  proto,
  type SocketConfig,
  type WAMessage,
  type WASocket,
} from 'baileys'
import { AppendLog, type LogState } from './disk.js'
import { refusalOf, RequestFailed, wordsOf } from './errors.js'
import { bare, isGroup, isLid, isNumber, same, userOf } from './jids.js'
import type { Jid, ReplyData, SendParams } from './protocol.js'
import { type Clock, keepNewest, type Log } from './runtime.js'

const ACK_WITHIN = 20_000
const UPLOAD_WITHIN = 120_000
const SOON = 5
const NOT_NOW = 60

export interface SenderParts {
  readonly sock: WASocket
  readonly sent: SentStore
  readonly clock: Clock
  readonly logger: SocketConfig['logger']
  readonly groups: { metadata(group: Jid): Promise<GroupMetadata> }
}

export class Sender {
  readonly acks: Acks

  constructor(private readonly parts: SenderParts) {
    this.acks = new Acks(parts.clock)
  }

  /** Send one message; rejects with `RequestFailed`. */
  async send(params: SendParams): Promise<ReplyData> {
    await readable(params.file?.path)
    for (const [id, message] of await this.#prepared(params)) {
      await this.#relay(id, params, message)
    }
    return { id: params.id, at: Math.floor(this.parts.clock.now() / 1000) }
  }

  /** The messages by id, and all that is needed to encrypt them; nothing is sent in here. */
  async #prepared(params: SendParams): Promise<readonly (readonly [string, proto.IMessage])[]> {
    try {
      const messages: [string, proto.IMessage][] = []
      for (const piece of piecesOf(params)) {
        messages.push([piece.id, await this.#message(params, piece)])
      }
      await this.#fetchKeys(params.to)
      return messages
    } catch (error) {
      if (error instanceof RequestFailed) throw error
      const words = `the message could not be prepared: ${wordsOf(error)}`
      throw failure(refusalOf(error)) ?? new RequestFailed('later', words, SOON)
    }
  }

  /** The message as it was sent before under this id, or a new one, with its file uploaded. */
  async #message({ to, quote }: SendParams, { id, content }: Piece): Promise<proto.IMessage> {
    const { sock, sent, logger } = this.parts
    const before = sent.messageTo(id, to)
    if (before !== undefined) return before
    const quoted = quote === null ? {} : { quoted: quotedOf(to, quote) }
    const made = await generateWAMessage(to, content, {
      logger,
      userJid: this.#ownFor(to),
      messageId: id,
      upload: sock.waUploadToServer,
      mediaUploadTimeoutMs: UPLOAD_WITHIN,
      ...quoted,
    })
    if (!made.message) throw new RequestFailed('refused', 'there is nothing to send')
    return made.message
  }

  /** Have the keys of everybody who gets the message. */
  async #fetchKeys(to: Jid): Promise<void> {
    const { sock, groups } = this.parts
    const people = isGroup(to)
      ? (await groups.metadata(to)).participants.map((each) => each.id)
      : [this.#ownFor(to), to]
    const devices = await sock.getUSyncDevices(people, true, false)
    if (!isGroup(to) && !devices.some((device) => device.user === userOf(to))) {
      throw await this.#unreachable(to)
    }
    const own = sock.user
    const others = devices.map((device) => device.jid)
    await sock.assertSessions(others.filter((jid) => jid !== own?.id && jid !== own?.lid))
  }

  /** Why a person has no devices. */
  async #unreachable(to: Jid): Promise<RequestFailed> {
    const found = isNumber(to) ? await this.parts.sock.onWhatsApp(to) : undefined
    const exists = found === undefined || found.some((each) => each.exists)
    return exists
      ? new RequestFailed('later', "WhatsApp did not list this number's devices", SOON)
      : new RequestFailed('refused', 'this number is not on WhatsApp')
  }

  async #relay(id: string, { to, edits }: SendParams, message: proto.IMessage): Promise<void> {
    const additionalAttributes = edits === '' ? {} : { edit: '1' }
    try {
      this.parts.sent.keep(id, to, message)
    } catch (error) {
      throw new RequestFailed('later', `cannot write to disk: ${wordsOf(error)}`, NOT_NOW)
    }
    try {
      const ack = this.acks.expect(id, ACK_WITHIN)
      await this.parts.sock.relayMessage(to, message, { messageId: id, additionalAttributes })
      accept(await ack)
    } catch (error) {
      if (error instanceof RequestFailed) throw error
      throw failure(refusalOf(error)) ?? unknown(wordsOf(error))
    }
  }

  /** Our own id of the kind that the chat uses. */
  #ownFor(to: Jid): Jid {
    const { id, lid } = this.parts.sock.user ?? { id: '' }
    return isLid(to) && lid !== undefined ? bare(lid) : bare(id)
  }
}

async function readable(path: string | undefined): Promise<void> {
  if (path === undefined) return
  // Baileys takes some strings for something other than paths.
  if (!isAbsolute(path)) throw new RequestFailed('refused', `not an absolute path: ${path}`)
  try {
    await access(path, constants.R_OK)
  } catch (error) {
    throw new RequestFailed('refused', `the file cannot be read: ${wordsOf(error)}`)
  }
}

function accept(refusal: number | null): void {
  if (refusal === 0) return
  if (refusal === null) throw unknown('no answer')
  const words = `WhatsApp answered with error ${refusal}`
  if (STALE.has(refusal)) throw unknown(words)
  throw failure(refusal) ?? new RequestFailed('refused', words)
}

/** What we know of the other's devices or of the group is old: the next attempt is a better one. */
const STALE: ReadonlySet<number> = new Set([421, 479])

function unknown(words: string): RequestFailed {
  return new RequestFailed('unknown', `WhatsApp has not confirmed the message: ${words}`)
}

/** WhatsApp's error numbers; null for those that do not say whether a retry makes sense. */
export function failure(code: number): RequestFailed | null {
  if (code === 429) return new RequestFailed('later', 'WhatsApp asks us to slow down', NOT_NOW)
  if (code > 500 && code < 600) {
    return new RequestFailed('later', `WhatsApp's server failed (${code})`, SOON)
  }
  const words = REFUSED.get(code)
  return words === undefined ? null : new RequestFailed('refused', words)
}

const REFUSED: ReadonlyMap<number, string> = new Map([
  [400, 'WhatsApp does not accept this message'],
  [401, 'WhatsApp does not allow messages to this chat'],
  [403, 'WhatsApp does not allow messages to this chat (blocked, or not in the group)'],
  [404, 'there is no such person or group on WhatsApp'],
  [405, 'WhatsApp does not allow messages to this chat'],
  [406, 'WhatsApp does not accept this message'],
  [410, 'this group no longer exists'],
  [500, 'WhatsApp cannot process this message'],
  [463, 'WhatsApp does not let this account start chats with unknown people'],
])

/**
 * The messages for one request, as Baileys' content; the last one has the id that was asked for.
 * Sound has no caption on WhatsApp, so that its text goes ahead as a message of its own.
 */
export function piecesOf({ id, to, text, edits, file }: SendParams): readonly Piece[] {
  // Without a preview: Baileys fetches what a text links to where link-preview-js is installed.
  const words = { text, linkPreview: null }
  const edit = edits === '' ? {} : { edit: { remoteJid: to, id: edits, fromMe: true } }
  if (file === null) return [{ id, content: { ...words, ...edit } }]
  const isSound = file.kind === 'audio' || file.kind === 'voice'
  if (text === '' || !isSound) return [{ id, content: fileContent(file, text) }]
  return [
    { id: `${id}T`, content: words },
    { id, content: fileContent(file, '') },
  ]
}

interface Piece {
  readonly id: string
  readonly content: AnyMessageContent
}

/** The quoted message, as far as WhatsApp shows it. */
export function quotedOf(to: Jid, quote: NonNullable<SendParams['quote']>): WAMessage {
  const { id, sender, text, from_me: fromMe } = quote
  const participant = isGroup(to) && !fromMe ? { participant: sender } : {}
  return { key: { remoteJid: to, id, fromMe, ...participant }, message: { conversation: text } }
}

function fileContent(file: NonNullable<SendParams['file']>, text: string): AnyMediaMessageContent {
  const [media, mimetype] = [{ url: file.path }, file.mime]
  const caption = text === '' ? {} : { caption: text }
  switch (file.kind) {
    case 'image':
      return { image: media, mimetype, ...caption }
    case 'video':
      return { video: media, mimetype, ...caption }
    case 'audio':
      return { audio: media, mimetype }
    case 'voice':
      return { audio: media, mimetype, ptt: true }
    case 'document':
      return { document: media, mimetype, fileName: file.name || 'file', ...caption }
  }
}

/** WhatsApp's confirmations of what we sent, by id. */
export class Acks {
  readonly #waiting = new Map<string, (refusal: number | null) => void>()

  constructor(private readonly clock: Clock) {}

  /**
   * WhatsApp's number for why it refuses the message with this id, 0 if it takes it; null if it
   * says nothing within `ms` milliseconds from now.
   */
  expect(id: string, ms: number): Promise<number | null> {
    return new Promise((resolve) => {
      const end = (refusal: number | null): void => {
        stop()
        if (this.#waiting.get(id) === end) this.#waiting.delete(id)
        resolve(refusal)
      }
      const stop = this.clock.after(ms, () => {
        end(null)
      })
      this.#waiting.set(id, end)
    })
  }

  /** Take an `ack` stanza of a message. */
  take({ attrs }: BinaryNode): void {
    this.#waiting.get(attrs['id'] ?? '')?.(Number(attrs['error'] ?? 0))
  }

  /** The connection is gone: nothing more will come. */
  close(): void {
    for (const end of this.#waiting.values()) end(null)
  }
}

const MOST = 2000
const DAY = 24 * 3600_000
const LONGEST = 7 * DAY

interface Sent {
  readonly id: string
  readonly to: Jid
  /** Milliseconds since 1970. */
  readonly at: number
  /** The message in WhatsApp's form, base64. */
  readonly message: string
}

/**
 * What we sent lately, by id: for phones that could not read it and ask again, and to know our own.
 *
 * Invariant: when `keep` has returned, the message is on disk; the newest ones are kept, a bounded
 * number of them, for a week; what is not kept any more is gone from the disk a day later.
 */
export class SentStore implements LogState<Sent> {
  readonly #kept = new Map<string, Sent>()
  readonly #log: AppendLog<Sent>
  #cancel: () => void = () => undefined

  constructor(
    path: string,
    private readonly clock: Clock,
    log: Log,
    private readonly most = MOST,
  ) {
    this.#log = new AppendLog(path, this, clock, log)
    this.#tidy()
  }

  /** Bring a message to disk before it is sent; throws if the disk refuses. */
  keep(id: string, to: Jid, message: proto.IMessage): void {
    const bytes = proto.Message.encode(message).finish()
    const at = this.clock.now()
    this.#log.append({ id, to, at, message: Buffer.from(bytes).toString('base64') })
  }

  /** Whether we sent the message with this id. */
  has(id: string): boolean {
    return this.#kept.has(id)
  }

  /**
   * The message with this id, if it went to this chat; a person may have an alternative id. What
   * went to others is shown to no one else.
   */
  messageTo(id: string, chat: Jid, alternative: Jid = ''): proto.IMessage | undefined {
    const sent = this.#kept.get(id)
    if (sent === undefined || !(same(chat, sent.to) || same(alternative, sent.to))) return undefined
    return proto.Message.decode(Buffer.from(sent.message, 'base64'))
  }

  close(): void {
    this.#cancel()
    this.#log.close()
  }

  apply(sent: Sent): void {
    this.#kept.delete(sent.id)
    this.#kept.set(sent.id, sent)
    keepNewest(this.#kept, this.most)
  }

  live(): Iterable<Sent> {
    return this.#kept.values()
  }

  encode(sent: Sent): string {
    return JSON.stringify(sent)
  }

  decode(line: string): Sent {
    const sent = JSON.parse(line) as Sent
    const texts = [sent.id, sent.to, sent.message]
    if (texts.every((each) => typeof each === 'string') && typeof sent.at === 'number') return sent
    throw new TypeError('not a sent message')
  }

  /** Forget what is old, now and once a day, in the file as well. */
  #tidy(): void {
    this.#cancel = this.clock.after(DAY, () => {
      this.#tidy()
    })
    const before = this.clock.now() - LONGEST
    for (const { id, at } of this.#kept.values()) if (at < before) this.#kept.delete(id)
    this.#log.renew()
  }
}
