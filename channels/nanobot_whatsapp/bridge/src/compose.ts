/** What the daemon wants to say, as Baileys' content; values in, values out. */

import type { AnyMediaMessageContent, AnyMessageContent, WAMessage } from 'baileys'
import { isGroup } from './jids.js'
import type { Jid, SendParams } from './protocol.js'

/** What files are where nobody says. */
const TYPES: Readonly<Record<OutFile['kind'], string>> = {
  image: 'image/jpeg',
  video: 'video/mp4',
  audio: 'audio/mpeg',
  voice: 'audio/ogg; codecs=opus',
  document: 'application/octet-stream',
}

/** One message on WhatsApp. */
export interface Piece {
  readonly id: string
  readonly content: AnyMessageContent
}

type OutFile = NonNullable<SendParams['file']>

/**
 * The messages for one request; the last one has the id that was asked for. Sound has no caption on
 * WhatsApp, so that its text goes ahead as a message of its own.
 */
export function piecesOf({ id, text, file }: SendParams): readonly Piece[] {
  if (file === null) return [{ id, content: words(text) }]
  if (text === '' || !isSound(file)) return [{ id, content: fileContent(file, text) }]
  return [
    { id: `${id}T`, content: words(text) },
    { id, content: fileContent(file, '') },
  ]
}

/** Without a preview: Baileys fetches what a text links to where link-preview-js is installed. */
function words(text: string): AnyMessageContent {
  return { text, linkPreview: null }
}

/** The quoted message, in as far as WhatsApp has to show it. */
export function quotedOf(to: Jid, quote: NonNullable<SendParams['quote']>): WAMessage {
  const { id, sender, text, from_me: fromMe } = quote
  const participant = isGroup(to) && !fromMe ? { participant: sender } : {}
  return { key: { remoteJid: to, id, fromMe, ...participant }, message: { conversation: text } }
}

function isSound({ kind }: OutFile): boolean {
  return kind === 'audio' || kind === 'voice'
}

function fileContent(file: OutFile, text: string): AnyMediaMessageContent {
  const media = { url: file.path }
  const caption = text === '' ? {} : { caption: text }
  const mimetype = file.mime || TYPES[file.kind]
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
