/**
 * From what WhatsApp delivers to the events of the protocol; values in, values out.
 *
 * A stanza says who sent something where and when (`Envelope`); the decrypted message says what.
 * What always holds: what is not a person's message to us becomes null: the status, newsletters,
 * receipts, what we or our other devices wrote to others. A reaction is for us where it is to
 * something that we sent here.
 */

import { decodeMessageNode, proto, type BinaryNode, type WAMessage } from 'baileys'
import { contentOf, excerpt, unwrapped, type Content } from './content.js'
import { bare, isGroup, isLid, isOurs, isPublic, otherId, type Own } from './jids.js'
import { isMessageId, type EventQuote, type Jid, type MessageEvent } from './protocol.js'

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
