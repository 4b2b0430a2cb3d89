/**
 * Cutting an event to the length of a line.
 *
 * Nearly all of a message comes from strangers, and a stranger must not be able to make an event
 * that cannot be sent: it would come back for ever. What always holds: the line of a fitted event,
 * with every character escaped, is below `MAX_LINE`; one that is short enough comes back unchanged.
 */

import { MAX_LINE, type BridgeEvent, type EventMedia, type EventQuote } from './protocol.js'

/** What the frame around an event may take. */
const FRAME = 1024

const LONG = 64 * 1024
const MEDIUM = 4 * 1024
const SHORT = 256
const MANY = 128

/** Bytes that the description of a file may take. */
const REF = 64 * 1024

const NOT_FETCHABLE = 'a file whose description is too long to be fetched'
const CUT = 'too long; the rest was cut off'

export function fitted(event: BridgeEvent): BridgeEvent {
  if (Buffer.byteLength(JSON.stringify(event)) <= MAX_LINE - FRAME) return event
  const media = fittedMedia(event.media)
  const lost = event.media !== null && media === null ? [NOT_FETCHABLE] : []
  return {
    ...event,
    ...fittedIds(event),
    name: short(event.name),
    title: short(event.title),
    text: event.text.slice(0, LONG),
    mentions: event.mentions.slice(0, MANY).map(short),
    quote: fittedQuote(event.quote),
    media,
    notes: [...event.notes.slice(0, 8).map((each) => each.slice(0, MEDIUM)), ...lost, CUT],
    unknown: short(event.unknown),
  }
}

function short(text: string): string {
  return text.slice(0, SHORT)
}

function fittedIds(
  event: BridgeEvent,
): Pick<BridgeEvent, 'id' | 'chat' | 'sender' | 'alt' | 'edits' | 'deletes'> {
  return {
    id: short(event.id),
    chat: short(event.chat),
    sender: short(event.sender),
    alt: short(event.alt),
    edits: short(event.edits),
    deletes: short(event.deletes),
  }
}

function fittedQuote(quote: EventQuote | null): EventQuote | null {
  if (quote === null) return null
  const { id, sender, text } = quote
  return { ...quote, id: short(id), sender: short(sender), text: text.slice(0, MEDIUM) }
}

function fittedMedia(media: EventMedia | null): EventMedia | null {
  if (media === null || JSON.stringify(media.ref).length > REF) return null
  return { ...media, mime: short(media.mime), name: short(media.name) }
}
