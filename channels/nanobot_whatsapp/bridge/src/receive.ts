/**
 * What comes in: from stanzas to events in the spool.
 *
 * A stanza says who sent something where and when (`Envelope`); the decrypted message says what.
 * Invariant: when `keep` has returned, what the stanza said is in the spool, or was before, or is
 * nothing for people: the status, newsletters, receipts, what we or our other devices wrote to
 * others. A reaction is for us where it is to something that we sent here. What a sender can make
 * long is cut, so that the line of an event is always shorter than `MAX_LINE`.
 */

import {
  type BinaryNode,
  decodeMessageNode,
  proto,
  type SignalDataSet,
  type WACallEvent,
  type WAMessage,
} from 'baileys'
import { type Auth, type Keys, seenChange } from './auth.js'
import { type Content, contentOf, excerpt, NOTHING, unwrapped } from './content.js'
import { bare, isGroup, isLid, isOurs, isPublic, otherId, type Own } from './jids.js'
import { type EventQuote, isMessageId, type Jid, type MessageEvent } from './protocol.js'
import { keepNewest, type Log } from './runtime.js'
import type { SentStore } from './send.js'
import type { Spool } from './spool.js'

const REMEMBERED = 4096
const LONGEST_QUOTE = 4096
const LONGEST_EMOJI = 32
const TAKEN_AWAY = 'none'
const LONGEST_NAME = 256
/** Mentions that are looked at, and that are passed on. */
const MOST_MENTIONS = 1024
const MENTIONS = 128

/** Who sent something where and when. */
export type Envelope = Pick<
  MessageEvent,
  'id' | 'chat' | 'sender' | 'alt' | 'name' | 'at' | 'from_me' | 'group' | 'offline'
>

/** What is known beside the message. */
export interface Surroundings {
  readonly auth: Pick<Auth, 'own' | 'otherOf'> & { readonly keys: Pick<Keys, 'seen'> }
  readonly sent: Pick<SentStore, 'has' | 'messageTo'>
  readonly groups: { nameOf(group: Jid): string }
}

/** The encrypted parts of a stanza. */
export function partsOf(stanza: BinaryNode): readonly BinaryNode[] {
  const { content } = stanza
  return Array.isArray(content) ? content.filter(({ tag }) => tag === 'enc') : []
}

export class Receiver {
  /** The stanza of each encrypted part, by the identity of its bytes. */
  readonly #stanzas = new WeakMap<Uint8Array, BinaryNode>()
  /** Ids of messages that come without being encrypted for us. */
  readonly #open = new Set<string>()

  constructor(
    private readonly spool: Pick<Spool, 'put'>,
    private readonly around: Surroundings,
    private readonly log: Log,
  ) {}

  /** Look at a message stanza before Baileys does. */
  watch(stanza: BinaryNode): void {
    for (const { content } of partsOf(stanza)) {
      if (content instanceof Uint8Array) this.#stanzas.set(content, stanza)
    }
    if (!isOpen(stanza)) return
    this.#open.add(stanza.attrs['id'] ?? '')
    keepNewest(this.#open, REMEMBERED)
  }

  /** The stanza that an encrypted part stands in, if it is one of those that carry messages. */
  stanzaOf(ciphertext: Uint8Array): BinaryNode | undefined {
    return this.#stanzas.get(ciphertext)
  }

  /** Whether what the stanza says was kept, and the keys that it used are gone. */
  has(stanza: BinaryNode): boolean {
    const envelope = envelopeOf(stanza, this.around.auth.own)
    return envelope !== null && this.around.auth.keys.seen(messageName(envelope))
  }

  /**
   * Bring what a stanza says to disk; throws if the disk refuses. Gives what is to be set together
   * with the keys, so that `has` knows the stanza from then on.
   */
  keep(stanza: BinaryNode, message: proto.IMessage): SignalDataSet {
    const { own } = this.around.auth
    const envelope = envelopeOf(stanza, own)
    if (envelope === null || this.has(stanza)) return {}
    for (const info of passedOnBy(message, envelope)) {
      if (info.message) this.#put(envelopeOfInfo(info, own), info.message)
    }
    this.#put(envelope, message)
    return hasBody(message) ? seenChange(messageName(envelope)) : {}
  }

  /**
   * Take what Baileys reports only after it has confirmed it to WhatsApp: messages that are not
   * encrypted for us. All others are here already.
   */
  takeOpen(messages: readonly WAMessage[]): void {
    for (const info of messages) {
      if (!this.#open.has(info.key.id ?? '')) continue
      this.#put(envelopeOfInfo(info, this.around.auth.own), info.message)
    }
  }

  /** Note that somebody called: each call once. It can't be answered here. */
  takeCalls(calls: readonly WACallEvent[]): void {
    for (const { id, from, callerPn, date, isVideo, isGroup, offline, status } of calls) {
      const { own } = this.around.auth
      const sender = bare(from)
      if (status !== 'offer' || isGroup || !isMessageId(id) || isOurs(sender, own)) continue
      const at = Math.floor(date.getTime() / 1000)
      const envelope = {
        ...{ id, chat: sender, sender, alt: otherId(sender, bare(callerPn), own), name: '' },
        ...{ at: Number.isSafeInteger(at) ? at : 0, from_me: false, group: false, offline },
      }
      const notes = [`a ${isVideo ? 'video' : 'voice'} call: nanobot cannot answer calls`]
      const event = withNothing(envelope, this.around, { notes, unanswered: true })
      if (event !== null) this.spool.put(event)
    }
  }

  /** `message` is absent if only the phone can read it. */
  #put(envelope: Envelope | null, message: proto.IMessage | null | undefined): void {
    const event = envelope && this.#event(envelope, message)
    if (event !== null) this.spool.put(event)
  }

  #event(envelope: Envelope, message: proto.IMessage | null | undefined): MessageEvent | null {
    try {
      if (message) return translate(envelope, message, this.around)
      const notes = ['a view-once message, which can only be opened on the phone']
      return withNothing(envelope, this.around, { notes })
    } catch (error) {
      // An unexpected kind of message must not come back for ever: report that there is one.
      this.log('warning', `a message could not be read: ${String(error)}`)
      return withNothing(envelope, this.around, { unknown: 'unreadable' })
    }
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

/** Fields that accompany a message. */
const BESIDE: ReadonlySet<string> = new Set<keyof proto.IMessage>([
  'messageContextInfo',
  'senderKeyDistributionMessage',
  'fastRatchetKeySenderKeyDistributionMessage',
])

/** Messages that our phone passes on, because we could not read them ourselves. */
function passedOnBy(message: proto.IMessage, envelope: Envelope): readonly proto.IWebMessageInfo[] {
  if (!envelope.from_me) return []
  const response = message.protocolMessage?.peerDataOperationRequestResponseMessage
  return (response?.peerDataOperationResult ?? []).flatMap((result) => {
    const bytes = result.placeholderMessageResendResponse?.webMessageInfoBytes
    try {
      return bytes ? [proto.WebMessageInfo.decode(bytes)] : []
    } catch {
      // The phone sent something else; Baileys says so in the log.
      return []
    }
  })
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
function envelopeOfInfo(info: proto.IWebMessageInfo, own: Own): Envelope | null {
  const key = info.key
  if (!key?.id || !key.remoteJid) return null
  const fromMe = key.fromMe === true
  const author = fromMe ? own.number : (info.participant ?? key.participant ?? key.remoteJid)
  return addressed({ ...info, key }, author, own, true)
}

function addressed(
  { key, messageTimestamp, pushName }: WAMessage,
  author: string,
  own: Own,
  offline: boolean,
): Envelope | null {
  const id = key.id ?? ''
  const chat = bare(key.remoteJid)
  if (!isMessageId(id) || chat === '' || isPublic(key.remoteJid ?? '')) return null
  const group = isGroup(chat)
  const from_me = key.fromMe === true
  const sender = bare(author)
  const at = Number(messageTimestamp)
  const other = bare(group ? key.participantAlt : key.remoteJidAlt)
  return {
    id,
    chat,
    sender,
    alt: from_me ? ourOther(sender, own) : otherId(sender, other, own),
    name: (pushName ?? '').slice(0, LONGEST_NAME),
    at: Number.isSafeInteger(at) ? at : 0,
    from_me,
    group,
    offline,
  }
}

function ourOther(sender: Jid, own: Own): Jid {
  return bare(isLid(sender) ? own.number : own.lid)
}

/** The event for a message; null if there is nothing in it for people. */
export function translate(
  given: Envelope,
  message: proto.IMessage,
  around: Surroundings,
): MessageEvent | null {
  const { own } = around.auth
  const { chat, sender, group } = given
  if (given.from_me && !isOwnNote(given, around)) return null
  const alt = given.alt || otherId(sender, around.auth.otherOf(sender), own)
  const sentHere: SentHere = (id) => around.sent.messageTo(id, chat, group ? '' : alt)
  const inner = unwrapped(message)
  const told = reactionIn(inner, sentHere, group) ?? toldIn(inner, sentHere)
  if (told === null) return null
  const { context, ...rest } = told
  const mentions = (context?.mentionedJid ?? []).slice(0, MOST_MENTIONS).map(bare).filter(Boolean)
  return {
    kind: 'message',
    ...given,
    alt,
    title: group ? around.groups.nameOf(chat).slice(0, LONGEST_NAME) : '',
    mentions: mentions.slice(0, MENTIONS),
    mentions_me: mentions.some((each) => isOurs(each, own)),
    forwarded: context?.isForwarded === true,
    unanswered: false,
    ...rest,
  }
}

/** Something that the owner of our number wrote to themselves, and that we did not send. */
function isOwnNote({ id, chat, group }: Envelope, { auth, sent }: Surroundings): boolean {
  return !group && isOurs(chat, auth.own) && !sent.has(id)
}

/** The event for a message that cannot be read. */
function withNothing(
  envelope: Envelope,
  around: Surroundings,
  changes: Partial<MessageEvent>,
): MessageEvent | null {
  const event = translate(envelope, { conversation: '' }, around)
  return event && { ...event, ...changes }
}

/** The message with this id, if we sent it to this chat. */
type SentHere = (id: string) => proto.IMessage | undefined

type Told = Content & Pick<MessageEvent, 'edits' | 'deletes' | 'quote' | 'reaction'>

/** What a message says, or does to another one; null for nothing. */
function toldIn(message: proto.IMessage, sentHere: SentHere): Told | null {
  const { said, ...changes } = changeIn(message)
  const content = changes.deletes === '' ? said && contentOf(said) : NOTHING
  const quote = quoteOf(content?.context ?? null, sentHere)
  return content && { ...content, ...changes, quote, reaction: '' }
}

/** A reaction put on a message or taken away; null for what is none, and in groups for one to what
 * others wrote. */
function reactionIn(
  { reactionMessage }: proto.IMessage,
  sentHere: SentHere,
  group: boolean,
): Told | null {
  const { key, text: emoji } = reactionMessage ?? {}
  const id = key?.id ?? ''
  const sent = sentHere(id)
  if (!isMessageId(id) || (group && !sent)) return null
  const text = sent ? excerpt(sent).slice(0, LONGEST_QUOTE) : ''
  const quote = { id, sender: '', text, ours: sent !== undefined }
  const reaction = emoji ? emoji.slice(0, LONGEST_EMOJI) : TAKEN_AWAY
  return { ...NOTHING, edits: '', deletes: '', quote, reaction }
}

interface Change {
  /** What is said; null for what is only meant for programs. */
  readonly said: proto.IMessage | null
  /** The id of the message that this one replaces, '' for none. */
  readonly edits: string
  /** The id of the message that its sender took back, '' for none. */
  readonly deletes: string
}

function changeIn(message: proto.IMessage): Change {
  const change = message.protocolMessage
  if (!change) return { said: message, edits: '', deletes: '' }
  const id = change.key?.id ?? ''
  const type = isMessageId(id) ? change.type : null
  const { MESSAGE_EDIT, REVOKE } = proto.Message.ProtocolMessage.Type
  if (type === MESSAGE_EDIT && change.editedMessage) {
    return { said: change.editedMessage, edits: id, deletes: '' }
  }
  return { said: null, edits: '', deletes: type === REVOKE ? id : '' }
}

function quoteOf(context: proto.IContextInfo | null, sentHere: SentHere): EventQuote | null {
  const id = context?.stanzaId ?? ''
  if (context === null || !isMessageId(id)) return null
  // What they say that we said is their word; what we sent here, and only here, we know.
  const sent = sentHere(id)
  const text = excerpt(sent ?? context.quotedMessage).slice(0, LONGEST_QUOTE)
  return { id, sender: bare(context.participant), text, ours: sent !== undefined }
}
