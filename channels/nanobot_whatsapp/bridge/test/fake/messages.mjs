/**
 * Messages as people write them, as values, to and from WhatsApp's protobufs.
 *
 * `compose` builds what a person sends from a description; `describe` says what a message of the
 * linked device says. Addresses in both are full JIDs.
 */

import { normalizeMessageContent, proto } from 'baileys'

const EDIT = proto.Message.ProtocolMessage.Type.MESSAGE_EDIT
const REVOKE = proto.Message.ProtocolMessage.Type.REVOKE

/** Kinds of files: the message's field, and the name its keys are derived with. */
export const KINDS = {
  image: { field: 'imageMessage', keys: 'image' },
  video: { field: 'videoMessage', keys: 'video' },
  audio: { field: 'audioMessage', keys: 'audio' },
  voice: { field: 'audioMessage', keys: 'audio', extra: { ptt: true } },
  document: { field: 'documentMessage', keys: 'document' },
  sticker: { field: 'stickerMessage', keys: 'sticker' },
}

/**
 * @param told what is said: `text`, and any of `mentions` (addresses), `quote` ({id, sender,
 *   text}), `forwarded`, `media` ({kind, mime, name, url, directPath, fields}), `location` ({lat,
 *   lon, name}), `contact` ({name, number}), `poll` ({name, options}), `reaction` ({id, text}),
 *   `edit` (an id), `revoke` (an id), `viewOnce`, `ephemeral`, `raw` (a message as JSON)
 * @param chat the address of the chat, for those that refer to an earlier message
 * @returns a `proto.Message`
 */
export function compose(told, chat) {
  const key = (id) => ({ remoteJid: chat, fromMe: true, id })
  if (told.raw) return proto.Message.fromObject(told.raw)
  if (told.reaction) {
    const { id, text } = told.reaction
    return proto.Message.fromObject({
      reactionMessage: { key: { ...key(id), fromMe: false }, text },
    })
  }
  if (told.revoke) {
    return proto.Message.fromObject({ protocolMessage: { key: key(told.revoke), type: REVOKE } })
  }
  const body = wrapped(told, plainBody(told))
  if (!told.edit) return proto.Message.fromObject(body)
  const edit = { key: key(told.edit), type: EDIT, editedMessage: body, timestampMs: Date.now() }
  return proto.Message.fromObject({ editedMessage: { message: { protocolMessage: edit } } })
}

function plainBody(told) {
  const contextInfo = context(told)
  if (told.media) return mediaBody(told, contextInfo)
  if (told.location) {
    const { lat, lon, name } = told.location
    return { locationMessage: { degreesLatitude: lat, degreesLongitude: lon, name, contextInfo } }
  }
  if (told.contact) {
    const { name, number } = told.contact
    const vcard = `BEGIN:VCARD\nVERSION:3.0\nFN:${name}\nTEL;waid=${number}:+${number}\nEND:VCARD`
    return { contactMessage: { displayName: name, vcard, contextInfo } }
  }
  if (told.poll) {
    const options = told.poll.options.map((optionName) => ({ optionName }))
    return { pollCreationMessage: { name: told.poll.name, options, contextInfo } }
  }
  if (!contextInfo) return { conversation: told.text }
  return { extendedTextMessage: { text: told.text, contextInfo } }
}

function context({ mentions, quote, forwarded }) {
  if (!mentions?.length && !quote && !forwarded) return undefined
  return {
    mentionedJid: mentions ?? [],
    ...(quote && {
      stanzaId: quote.id,
      participant: quote.sender,
      quotedMessage: { conversation: quote.text ?? '' },
    }),
    ...(forwarded && { isForwarded: true, forwardingScore: 1 }),
  }
}

function mediaBody({ text, media }, contextInfo) {
  const { field, extra } = KINDS[media.kind]
  const name = media.kind === 'document' ? { fileName: media.name } : {}
  const caption = text ? { caption: text } : {}
  const { mime: mimetype, url, directPath, fields } = media
  return {
    [field]: { mimetype, url, directPath, contextInfo, ...fields, ...name, ...caption, ...extra },
  }
}

function wrapped({ viewOnce, ephemeral }, body) {
  if (viewOnce) return { viewOnceMessageV2: { message: body } }
  if (ephemeral) return { ephemeralMessage: { message: body } }
  return body
}

/** @returns what a message says: `{kind, text, mentions, quote, edits, media}` */
export function describe(message) {
  const protocol = normalizeMessageContent(message)?.protocolMessage
  const { field, body } = contentOf(protocol?.editedMessage ?? message)
  const file = Object.keys(KINDS).find((name) => isKind(name, field, body))
  return {
    kind: file ?? (TEXTS.includes(field) ? 'text' : field),
    text: textOf(field, body),
    ...referencesOf(body.contextInfo ?? {}),
    edits: protocol?.type === EDIT ? protocol.key.id : '',
    media: file ? { ...body, keys: KINDS[file].keys } : null,
  }
}

function textOf(field, body) {
  return field === 'conversation' ? body.conversation : (body.text ?? body.caption ?? '')
}

function referencesOf({ mentionedJid = [], stanzaId, participant = '' }) {
  return { mentions: mentionedJid, quote: stanzaId ? { id: stanzaId, sender: participant } : null }
}

const TEXTS = ['conversation', 'extendedTextMessage']

/** The field that is filled and what is in it; for a plain text, the message itself. */
function contentOf(message) {
  const content = normalizeMessageContent(message) ?? {}
  if (content.conversation) return { field: 'conversation', body: content }
  const field = Object.keys(content).find((name) => content[name] && name.endsWith('Message'))
  return { field: field ?? '', body: field ? content[field] : {} }
}

function isKind(name, field, body) {
  const { field: wanted, extra } = KINDS[name]
  if (field !== wanted) return false
  return field !== 'audioMessage' || Boolean(body.ptt) === Boolean(extra?.ptt)
}
