/**
 * What comes in: from stanzas to events in the spool.
 *
 * What always holds: when `keep` has resolved, what the stanza said is in the spool, or was before,
 * or is nothing for people. One message is spooled once, however often and in whatever way it
 * comes, as far back as this can remember; the daemon knows the rest.
 */

import {
  type BinaryNode,
  decodeMessageNode,
  proto,
  type SignalDataSet,
  type WAMessage,
} from 'baileys'
import { seenChange } from './auth.js'
import { type Content, contentOf, excerpt, unwrapped } from './content.js'
import { bare, isGroup, isLid, isOurs, isPublic, otherId, type Own } from './jids.js'
import { eventKey, type EventQuote, isMessageId, type Jid, type MessageEvent } from './protocol.js'
import { type Inbox, partsOf } from './repository.js'
import type { Log } from './runtime.js'

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

/*
 * From what WhatsApp delivers to the events of the protocol; values in, values out.
 *
 * A stanza says who sent something where and when (`Envelope`); the decrypted message says what.
 * What always holds: what is not a person's message to us becomes null: the status, newsletters,
 * receipts, what we or our other devices wrote to others. A reaction is for us where it is to
 * something that we sent here.
 */

const MENTIONS = 1024
const QUOTE = 4096
const EMOJI = 32
/** What a change of another message says itself. */
const NOTHING: Content = { text: '', media: null, notes: [], context: null, unknown: '' }

/** Who sent something where and when. */
export interface Envelope {
  readonly id: string
  readonly chat: Jid
  readonly sender: Jid
  readonly alt: Jid
  readonly name: string
  /** Unix seconds; 0 if the server does not say. */
  readonly at: number
  readonly fromMe: boolean
  readonly group: boolean
  readonly offline: boolean
}

/** What a translation needs to know beside the message. */
export interface Scene {
  readonly own: Own
  /** The group's name, '' if not known. */
  readonly title: string
  /** Whether we sent the message with this id. */
  ours(id: string): boolean
  /** The message with this id, if we sent it to this chat. */
  sentHere(id: string): proto.IMessage | undefined
}

/** What the stanza says around the message; null if it is not one for us. */
export function envelopeOf(stanza: BinaryNode, own: Own): Envelope | null {
  try {
    const { fullMessage, author } = decodeMessageNode(stanza, own.number, own.lid)
    return addressed(fullMessage, author, own, Boolean(stanza.attrs['offline']))
  } catch {
    // Baileys throws for stanzas that break WhatsApp's rules, and refuses them itself.
    return null
  }
}

/** The envelope of a message that the phone passes on to us as a whole. */
export function envelopeOfInfo(info: proto.IWebMessageInfo, own: Own): Envelope | null {
  const key = info.key
  if (!key?.id || !key.remoteJid) return null
  const fromMe = key.fromMe === true
  const author = fromMe ? own.number : (info.participant ?? key.participant ?? key.remoteJid)
  return addressed({ ...info, key }, author, own, true)
}

/** The event for a message; null if there is nothing in it for people. */
export function translate(
  envelope: Envelope,
  message: proto.IMessage,
  scene: Scene,
): MessageEvent | null {
  if (envelope.fromMe && !isOwnNote(envelope, scene)) return null
  const told = toldBy(unwrapped(message), scene)
  if (told === null) return null
  const { content, edits, deletes, reaction } = told
  const context = content.context
  const mentions = mentionsOf(context)
  const { own } = scene
  return {
    kind: 'message',
    id: envelope.id,
    chat: envelope.chat,
    sender: envelope.sender,
    alt: envelope.alt,
    name: envelope.name,
    at: envelope.at,
    from_me: envelope.fromMe,
    group: envelope.group,
    title: envelope.group ? scene.title : '',
    offline: envelope.offline,
    text: content.text,
    mentions,
    mentions_me: mentions.some((each) => isOurs(each, own)),
    quote: reaction?.to ?? quoteOf(context, scene),
    forwarded: context?.isForwarded === true,
    media: content.media,
    notes: content.notes,
    edits,
    deletes,
    reaction: reaction?.emoji ?? '',
    unknown: content.unknown,
  }
}

/** The event for a message that WhatsApp lets nobody read but the phone. */
export function unavailable(envelope: Envelope, scene: Scene): MessageEvent | null {
  const event = translate(envelope, { conversation: '' }, scene)
  if (event === null) return null
  return { ...event, notes: ['a view-once message, which can only be opened on the phone'] }
}

/** The event for a message that cannot be translated at all. */
export function unreadable(envelope: Envelope, scene: Scene): MessageEvent | null {
  const event = translate(envelope, { conversation: '' }, scene)
  return event && { ...event, unknown: 'unreadable' }
}

function addressed(
  message: WAMessage,
  author: string,
  own: Own,
  offline: boolean,
): Envelope | null {
  const { key, messageTimestamp, pushName } = message
  const id = key.id ?? ''
  const chat = bare(key.remoteJid)
  if (!isMessageId(id) || chat === '' || isPublic(key.remoteJid ?? '')) return null
  const group = isGroup(chat)
  const fromMe = key.fromMe === true
  const sender = bare(author)
  const at = Number(messageTimestamp)
  const other = bare(group ? key.participantAlt : key.remoteJidAlt)
  return {
    id,
    chat,
    sender,
    alt: fromMe ? otherOf(sender, own) : otherId(sender, other, own),
    name: pushName ?? '',
    at: Number.isSafeInteger(at) ? at : 0,
    fromMe,
    group,
    offline,
  }
}

function otherOf(sender: Jid, own: Own): Jid {
  return bare(isLid(sender) ? own.number : own.lid)
}

/** Something that the owner of our number wrote to themselves, and that we did not send. */
function isOwnNote({ id, chat, group }: Envelope, scene: Scene): boolean {
  return !group && isOurs(chat, scene.own) && !scene.ours(id)
}

interface Told {
  readonly content: Content
  readonly edits: string
  readonly deletes: string
  readonly reaction: Reaction | null
}

/** What a message says, or does to another one; null for nothing. */
function toldBy(message: proto.IMessage, scene: Scene): Told | null {
  const { said, edits } = edited(message)
  const deletes = deleted(message)
  const reaction = reactionOf(message, scene)
  if (deletes !== '' || reaction !== null) return { content: NOTHING, edits: '', deletes, reaction }
  const content = said === null ? null : contentOf(said)
  return content && { content, edits, deletes, reaction }
}

interface Said {
  /** Null for what is only meant for programs. */
  readonly said: proto.IMessage | null
  readonly edits: string
}

function edited(message: proto.IMessage): Said {
  const change = message.protocolMessage
  if (!change) return { said: message, edits: '' }
  const { type, editedMessage, key } = change
  const isEdit = type === proto.Message.ProtocolMessage.Type.MESSAGE_EDIT
  const edits = key?.id ?? ''
  if (!isEdit || !editedMessage || !isMessageId(edits)) return { said: null, edits: '' }
  return { said: unwrapped(editedMessage), edits }
}

/** The id of the message that its sender took back; '' for none. */
function deleted(message: proto.IMessage): string {
  const change = message.protocolMessage
  const isRevoke = change?.type === proto.Message.ProtocolMessage.Type.REVOKE
  const id = change?.key?.id ?? ''
  return isRevoke && isMessageId(id) ? id : ''
}

interface Reaction {
  readonly emoji: string
  readonly to: EventQuote
}

/** A mark on something that we sent; null for any other, and for one that was taken away. */
function reactionOf(message: proto.IMessage, scene: Scene): Reaction | null {
  const id = message.reactionMessage?.key?.id ?? ''
  const emoji = (message.reactionMessage?.text ?? '').slice(0, EMOJI)
  const sent = scene.sentHere(id)
  if (emoji === '' || sent === undefined) return null
  return { emoji, to: { id, sender: '', text: excerpt(sent).slice(0, QUOTE), ours: true } }
}

function mentionsOf(context: proto.IContextInfo | null): readonly Jid[] {
  const found = (context?.mentionedJid ?? []).slice(0, MENTIONS).map(bare)
  return found.filter((each) => each !== '')
}

function quoteOf(context: proto.IContextInfo | null, scene: Scene): EventQuote | null {
  const id = context?.stanzaId ?? ''
  if (context === null || !isMessageId(id)) return null
  // What they say that we said is their word; what we sent here, and only here, we know.
  const sent = scene.sentHere(id)
  const text = excerpt(sent ?? context.quotedMessage).slice(0, QUOTE)
  return { id, sender: bare(context.participant), text, ours: sent !== undefined }
}
