/**
 * Sending: a message has gone out when WhatsApp's server has confirmed it.
 *
 * What always holds: a message is in the sent store before it goes out, so a phone that cannot read
 * it gets it again, even after a restart; a failure before the message was handed to the connection
 * is 'later' or 'refused', one after it 'unknown'. Therefore all that has to be asked of WhatsApp
 * beforehand (members, devices, keys) is asked first, and on its own.
 */

import { access, constants } from 'node:fs/promises'
import { isAbsolute } from 'node:path'
import { generateWAMessage, type proto, type SocketConfig, type WASocket } from 'baileys'
import { Acks, type Ack } from './acks.js'
import { refusalOf, wordsOf } from './boom.js'
import type { Clock } from './clock.js'
import { piecesOf, quotedOf, type Piece } from './compose.js'
import { bare, isGroup, isLid, isNumber, userOf } from './jids.js'
import { RequestFailed } from './port.js'
import type { Jid, ReplyData, SendParams } from './protocol.js'
import type { SentStore } from './sent.js'

const ACK_WITHIN = 20_000
const UPLOAD_WITHIN = 120_000
const SOON = 5
const NOT_NOW = 60

export interface SenderParts {
  readonly sock: WASocket
  readonly sent: SentStore
  readonly clock: Clock
  readonly logger: SocketConfig['logger']
  /** Members of a group, device ids left out. */
  members(group: Jid): Promise<readonly Jid[]>
}

export class Sender {
  readonly acks: Acks

  constructor(private readonly parts: SenderParts) {
    this.acks = new Acks(parts.clock)
  }

  /** Send one message; rejects with `RequestFailed`. */
  async send(params: SendParams): Promise<ReplyData> {
    const messages: [string, proto.IMessage][] = []
    await readable(params.file?.path)
    for (const piece of piecesOf(params)) {
      messages.push([piece.id, await this.#before(() => this.#message(params, piece))])
    }
    await this.#before(() => this.#prepare(params.to))
    for (const [id, message] of messages) {
      await this.#keep(id, params.to, message)
      await this.#relay(id, params.to, message)
    }
    return { id: params.id, at: Math.floor(this.parts.clock.now() / 1000) }
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

  /** Have all that is needed to encrypt for everybody who gets the message. */
  async #prepare(to: Jid): Promise<void> {
    const { sock } = this.parts
    const people = isGroup(to) ? await this.parts.members(to) : [this.#ownFor(to), to]
    const devices = await sock.getUSyncDevices([...people], true, false)
    if (!isGroup(to) && !devices.some((device) => device.user === userOf(to))) {
      throw await this.#unreachable(to)
    }
    const own = sock.user
    const others = devices.map((device) => device.jid)
    await sock.assertSessions(others.filter((jid) => jid !== own?.id && jid !== own?.lid))
  }

  /** Why somebody has no devices. */
  async #unreachable(to: Jid): Promise<RequestFailed> {
    const found = isNumber(to) ? await this.parts.sock.onWhatsApp(to) : undefined
    const exists = found === undefined || found.some((each) => each.exists)
    return exists
      ? new RequestFailed('later', 'WhatsApp does not say which devices they have', SOON)
      : new RequestFailed('refused', 'this number is not on WhatsApp')
  }

  async #keep(id: string, to: Jid, message: proto.IMessage): Promise<void> {
    try {
      await this.parts.sent.keep(id, to, message)
    } catch (error) {
      throw new RequestFailed('later', `cannot write to disk: ${wordsOf(error)}`, NOT_NOW)
    }
  }

  async #relay(id: string, to: Jid, message: proto.IMessage): Promise<void> {
    const expected = this.acks.expect(id)
    try {
      await this.parts.sock.relayMessage(to, message, { messageId: id })
      accept(await expected.within(ACK_WITHIN))
    } catch (error) {
      if (error instanceof RequestFailed) throw error
      throw failure(refusalOf(error)) ?? unknown(wordsOf(error))
    } finally {
      expected.end()
    }
  }

  /** Run a step before which and in which nothing is sent. */
  async #before<T>(step: () => Promise<T>): Promise<T> {
    try {
      return await step()
    } catch (error) {
      if (error instanceof RequestFailed) throw error
      const words = `WhatsApp did not help to send: ${wordsOf(error)}`
      throw failure(refusalOf(error)) ?? new RequestFailed('later', words, SOON)
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
  // Baileys takes some strings for something else than paths.
  if (!isAbsolute(path)) throw new RequestFailed('refused', `not an absolute path: ${path}`)
  try {
    await access(path, constants.R_OK)
  } catch (error) {
    throw new RequestFailed('refused', `the file cannot be read: ${wordsOf(error)}`)
  }
}

function accept(ack: Ack): void {
  if (ack === 'taken') return
  if (ack === 'silent') throw unknown('no confirmation')
  const words = `WhatsApp answered ${ack.refusal}`
  if (STALE.has(ack.refusal)) throw unknown(words)
  throw failure(ack.refusal) ?? new RequestFailed('refused', words)
}

/** What we know of the other's devices or of the group is old: the next attempt is a better one. */
const STALE: ReadonlySet<number> = new Set([421, 479])

function unknown(words: string): RequestFailed {
  return new RequestFailed('unknown', `WhatsApp has not confirmed the message: ${words}`)
}

/** WhatsApp's numbers in words; null for those that do not say whether it makes sense to go on. */
export function failure(code: number): RequestFailed | null {
  if (code === 429) return new RequestFailed('later', 'WhatsApp wants us to send less', NOT_NOW)
  if (code > 500 && code < 600) {
    return new RequestFailed('later', `WhatsApp's server has trouble (${code})`, SOON)
  }
  const words = REFUSED.get(code)
  return words === undefined ? null : new RequestFailed('refused', words)
}

const REFUSED: ReadonlyMap<number, string> = new Map([
  [400, 'WhatsApp does not accept this message'],
  [401, 'WhatsApp does not let us write there'],
  [403, 'WhatsApp does not let us write there: not a member of the group, or blocked'],
  [404, 'there is no such person or group on WhatsApp'],
  [405, 'WhatsApp does not let us write there'],
  [406, 'WhatsApp does not accept this message'],
  [410, 'this group is gone'],
  [500, 'WhatsApp cannot do anything with this message'],
  [463, 'WhatsApp does not let this account begin chats with people it does not know'],
])
