/**
 * What comes in: from stanzas to events in the spool.
 *
 * What always holds: when `keep` has resolved, what the stanza said is in the spool, or was before,
 * or is nothing for people. One message is spooled once, however often and in whatever way it
 * comes, as far back as this can remember; the daemon knows the rest.
 */

import { proto, type BinaryNode, type SignalDataSet, type WAMessage } from 'baileys'
import { otherId, type Own } from './jids.js'
import { seenChange } from './keys.js'
import { partsOf, type Inbox } from './repository.js'
import type { Log } from './log.js'
import { eventKey, type Jid, type MessageEvent } from './protocol.js'
import {
  envelopeOf,
  envelopeOfInfo,
  translate,
  unavailable,
  unreadable,
  type Envelope,
  type Scene,
} from './translate.js'

const REMEMBERED = 4096

/** Where events go. */
export interface EventSpool {
  put(event: MessageEvent): Promise<number>
  has(key: string): boolean
}

/** What is known about the world. */
export interface Surroundings {
  own(): Own
  /** The name of a group, '' if it is not known yet. */
  titleOf(group: Jid): string
  /** The other id of a person, '' if it is not known. */
  otherOf(person: Jid): Jid
  /** Whether we sent the message with this id. */
  ours(id: string): boolean
  /** The message with this id, if we sent it there: to a chat with one of its two ids. */
  sentTo(id: string, chat: Jid, alternative: Jid): proto.IMessage | undefined
  /** Whether the message with this name was kept, and the keys that it used are gone. */
  seen(name: string): boolean
}

export class Receiver implements Inbox {
  /** The stanza of each encrypted part, by the identity of its bytes. */
  readonly #stanzas = new WeakMap<Uint8Array, BinaryNode>()
  /** Ids of messages that come without being encrypted for us. */
  readonly #open = new Recent()
  readonly #events = new Recent()

  constructor(
    private readonly spool: EventSpool,
    private readonly around: Surroundings,
    private readonly log: Log,
  ) {}

  /** Look at a message stanza before Baileys does. */
  watch(stanza: BinaryNode): void {
    for (const { content } of partsOf(stanza)) {
      if (content instanceof Uint8Array) this.#stanzas.set(content, stanza)
    }
    if (isOpen(stanza)) this.#open.add(stanza.attrs['id'] ?? '')
  }

  stanzaOf(ciphertext: Uint8Array): BinaryNode | undefined {
    return this.#stanzas.get(ciphertext)
  }

  has(stanza: BinaryNode): boolean {
    const envelope = envelopeOf(stanza, this.around.own())
    return envelope !== null && this.around.seen(messageName(envelope))
  }

  async keep(stanza: BinaryNode, message: proto.IMessage): Promise<SignalDataSet> {
    const own = this.around.own()
    const envelope = envelopeOf(stanza, own)
    if (envelope === null || this.has(stanza)) return {}
    for (const passedOn of passedOnBy(message, envelope)) await this.#keepInfo(passedOn, own)
    await this.#put(envelope, (scene) => translate(this.#known(envelope), message, scene))
    return hasBody(message) ? seenChange(messageName(envelope)) : {}
  }

  /**
   * Take what Baileys reports only after it has confirmed it to WhatsApp: messages that are not
   * encrypted for us. All others are here already.
   */
  async takeOpen(messages: readonly WAMessage[]): Promise<void> {
    const own = this.around.own()
    for (const info of messages) {
      const envelope = this.#open.has(info.key.id ?? '') ? envelopeOfInfo(info, own) : null
      if (envelope === null) continue
      const said = info.message
      await this.#put(envelope, (scene) => {
        const known = this.#known(envelope)
        return said ? translate(known, said, scene) : unavailable(known, scene)
      })
    }
  }

  async #keepInfo(info: proto.IWebMessageInfo, own: Own): Promise<void> {
    const envelope = envelopeOfInfo(info, own)
    const message = info.message
    if (envelope === null || !message) return
    await this.#put(envelope, (scene) => translate(this.#known(envelope), message, scene))
  }

  #known(envelope: Envelope): Envelope {
    const { sender, alt } = envelope
    if (alt !== '') return envelope
    return { ...envelope, alt: otherId(sender, this.around.otherOf(sender), this.around.own()) }
  }

  async #put(envelope: Envelope, event: (scene: Scene) => MessageEvent | null): Promise<void> {
    const { chat, group } = envelope
    const scene: Scene = {
      own: this.around.own(),
      title: this.around.titleOf(chat),
      ours: (id) => this.around.ours(id),
      sentHere: (id) => {
        return this.around.sentTo(id, chat, group ? '' : this.#known(envelope).alt)
      },
    }
    const made = this.#made(envelope, event, scene)
    if (made === null) return
    const key = eventKey(made)
    if (!this.#events.has(key) && !this.spool.has(key)) await this.spool.put(made)
    this.#events.add(key)
  }

  #made(
    envelope: Envelope,
    event: (scene: Scene) => MessageEvent | null,
    scene: Scene,
  ): MessageEvent | null {
    try {
      return event(scene)
    } catch (error) {
      // A message that nobody foresaw must not come back for ever: say that there is one.
      this.log.warning(`a message could not be read: ${String(error)}`)
      return unreadable(envelope, scene)
    }
  }
}

/** The last strings that were added, a bounded number of them. */
class Recent {
  readonly #kept = new Set<string>()

  has(each: string): boolean {
    return this.#kept.has(each)
  }

  add(each: string): void {
    this.#kept.delete(each)
    this.#kept.add(each)
    const oldest = this.#kept.values().next()
    if (this.#kept.size > REMEMBERED && !oldest.done) this.#kept.delete(oldest.value)
  }
}

/** Whether a stanza says something without an encrypted part that we could read. */
function isOpen({ content }: BinaryNode): boolean {
  if (!Array.isArray(content)) return false
  return content.some(({ tag, attrs }) => {
    return tag === 'plaintext' || (tag === 'unavailable' && attrs['type'] === 'view_once')
  })
}

function messageName({ chat, sender, id }: Envelope): string {
  return JSON.stringify([chat, sender, id])
}

/** Whether there is more in it than the sender's key for a group. */
function hasBody(message: proto.IMessage): boolean {
  return Object.keys(message).some((field) => !BESIDE.has(field))
}

/** Fields that come along with a message. */
const BESIDE: ReadonlySet<string> = new Set<keyof proto.IMessage>([
  'messageContextInfo',
  'senderKeyDistributionMessage',
  'fastRatchetKeySenderKeyDistributionMessage',
])

/** Messages that our phone passes on, because we could not read them ourselves. */
function passedOnBy(message: proto.IMessage, envelope: Envelope): readonly proto.IWebMessageInfo[] {
  if (!envelope.fromMe) return []
  const response = message.protocolMessage?.peerDataOperationRequestResponseMessage
  return (response?.peerDataOperationResult ?? []).flatMap((result) => {
    const bytes = result.placeholderMessageResendResponse?.webMessageInfoBytes
    return bytes ? decodedInfo(bytes) : []
  })
}

function decodedInfo(bytes: Uint8Array): readonly proto.IWebMessageInfo[] {
  try {
    return [proto.WebMessageInfo.decode(bytes)]
  } catch {
    // The phone sent something else; Baileys says so in the log.
    return []
  }
}
