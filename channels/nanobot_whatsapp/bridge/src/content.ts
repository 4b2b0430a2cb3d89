/**
 * What a message says: text, a file, notes in words, and what it refers to.
 *
 * WhatsApp has about a hundred kinds of messages. Invariant: each is read here, is listed as
 * nothing for people, or is reported as unknown; none is dropped silently. As the sender chooses
 * all of it, each part is cut to a length.
 */

import type { proto } from 'baileys'
import { type FilePart, mediaOf } from './media.js'
import type { EventMedia, MediaRef } from './protocol.js'

/** Characters of the longest text, note and contact that are passed on. */
const LONGEST = 64 * 1024
const LONGEST_NOTE = 4096
const LONGEST_CONTACT = 1024
const MOST_CONTACTS = 20
const CUT = 'the message was too long; the rest was cut off'
const DEEPEST = 8
const LONGEST_CARD = 8 * 1024
const MOST_PHONES = 10
const MOST_FIELDS = 18
/** Fields of a form's answers that are for programs. */
const TOKENS: ReadonlySet<string> = new Set(['flow_token', 'id'])
const PHONE = /^(?:item\d{1,3}\.)?TEL(?:;[^:]*)?:(.*)$/i

export interface Content {
  readonly text: string
  readonly media: EventMedia | null
  readonly notes: readonly string[]
  readonly context: proto.IContextInfo | null
  /** The field that holds a kind which is not known here, else ''. */
  readonly unknown: string
}

/** What a change of another message says itself. */
export const NOTHING: Content = { text: '', media: null, notes: [], context: null, unknown: '' }

type Found = Partial<Content>
type Field = keyof proto.IMessage
type Readers = { readonly [F in Field]?: (part: NonNullable<proto.IMessage[F]>) => Found }

/** What the message says; null if it says nothing to people. */
export function contentOf(message: proto.IMessage): Content | null {
  const inner = unwrapped(message)
  const all = Object.keys(inner) as Field[]
  const fields = all.filter((field) => !SILENT.has(field) && (inner[field] ?? null) !== null)
  const field = fields.find((each) => Object.hasOwn(READERS, each)) ?? fields[0]
  if (field === undefined) return null
  // The type of `READERS` sees to it that the reader fits the part.
  const reader = READERS[field] as ((part: unknown) => Found) | undefined
  if (reader === undefined) return { ...NOTHING, unknown: field }
  const { contextInfo } = inner[field] as { readonly contextInfo?: proto.IContextInfo | null }
  const found = { ...NOTHING, context: contextInfo ?? null, ...reader(inner[field]) }
  const notes = found.notes.map((each) => each.slice(0, LONGEST_NOTE))
  if (found.text.length <= LONGEST) return { ...found, notes }
  return { ...found, text: found.text.slice(0, LONGEST), notes: [...notes, CUT] }
}

/** The message inside of those that only wrap another (disappearing, view once, edited…). */
export function unwrapped(message: proto.IMessage): proto.IMessage {
  let inner = message
  for (let depth = 0; depth < DEEPEST; depth++) {
    const wrapper = WRAPPERS.find((field) => inner[field]?.message)
    const next = wrapper && inner[wrapper]?.message
    if (!next) return inner
    inner = next
  }
  return inner
}

/** A short text for a message that is quoted. */
export function excerpt(message: proto.IMessage | null | undefined): string {
  const content = message ? contentOf(message) : null
  if (content === null) return ''
  if (content.text !== '') return content.text
  if (content.notes[0] !== undefined) return content.notes[0]
  return content.media === null ? '' : `[${content.media.kind}]`
}

function file(kind: MediaRef['kind']): (part: FilePart) => Found {
  return (part) => {
    const media = mediaOf(kind, part)
    const notes = media === null ? [`a file (${kind}) that cannot be fetched`] : []
    return { text: part.caption ?? '', media, notes }
  }
}

/** Several texts, one above the other. */
function lines(...all: readonly (string | null | undefined)[]): Found {
  return { text: all.filter(Boolean).join('\n') }
}

/** `poll: Lunch? (pizza / soup)` */
function poll(part: proto.Message.IPollCreationMessage): Found {
  const options = (part.options ?? []).map((option) => option.optionName ?? '')
  return { notes: [`poll: ${part.name ?? ''} (${options.join(' / ')})`] }
}

function template(part: proto.Message.ITemplateMessage): Found {
  const hydrated = part.hydratedTemplate ?? part.hydratedFourRowTemplate
  const { hydratedTitleText, hydratedContentText, hydratedFooterText } = hydrated ?? {}
  return lines(hydratedTitleText, hydratedContentText, hydratedFooterText)
}

interface Place {
  readonly degreesLatitude?: number | null
  readonly degreesLongitude?: number | null
  readonly name?: string | null
  readonly address?: string | null
}

/** `location: 52.52, 13.4 (Town Hall, High Street 1)` */
function location(what: string, place: Place): string {
  const degrees = [place.degreesLatitude, place.degreesLongitude].map((each) => {
    return String(Number((each ?? 0).toFixed(6)))
  })
  const words = [place.name, place.address].filter(Boolean).join(', ')
  return `${what}: ${degrees.join(', ')}${words === '' ? '' : ` (${words})`}`
}

/** `contact: Ada, +15550001111` */
function contact({ displayName, vcard }: proto.Message.IContactMessage): string {
  // Line by line, so that no part of the pattern can go over the whole card again and again.
  const card = (vcard ?? '').slice(0, LONGEST_CARD).split(/\r\n?|\n/)
  const phones = card.flatMap((line) => PHONE.exec(line)?.[1]?.trim() ?? []).slice(0, MOST_PHONES)
  const words = [displayName, ...phones].filter(Boolean).join(', ')
  return `contact: ${words}`.slice(0, LONGEST_CONTACT)
}

/** `event: Picnic, 2030-05-01T10:00:00.000Z, the park: bring cake` */
function event(part: proto.Message.IEventMessage): Found {
  const start = Number(part.startTime ?? 0)
  const when = start > 0 && start < 1e11 ? new Date(start * 1000).toISOString() : ''
  const facts = [part.name, when, part.location?.name, part.isCanceled ? 'cancelled' : '']
  const description = part.description ? `: ${part.description}` : ''
  return { notes: [`event: ${facts.filter(Boolean).join(', ')}${description}`] }
}

/** `taste: good` for each field of a form; the text as it is if it is no JSON. */
function answers(json: string): readonly string[] {
  if (json === '') return []
  const asItIs = [`answers to a form: ${json}`]
  try {
    const given: unknown = JSON.parse(json)
    if (typeof given !== 'object' || given === null) return asItIs
    const fields = Object.entries(given).filter(([key]) => !TOKENS.has(key))
    return fields.slice(0, MOST_FIELDS).map(([key, value]) => {
      return `${key}: ${typeof value === 'string' ? value : JSON.stringify(value)}`
    })
  } catch {
    return asItIs
  }
}

const READERS: Readers = {
  conversation: (text) => ({ text }),
  extendedTextMessage: (part) => ({ text: part.text ?? '' }),

  imageMessage: file('image'),
  videoMessage: file('video'),
  ptvMessage: file('video'),
  audioMessage: (part) => file(part.ptt ? 'voice' : 'audio')(part),
  documentMessage: file('document'),
  stickerMessage: file('sticker'),

  locationMessage: (part) => ({ notes: [location('location', part)] }),
  liveLocationMessage: (part) => ({
    text: part.caption ?? '',
    notes: [location('live location', part)],
  }),
  contactMessage: (part) => ({ notes: [contact(part)] }),
  contactsArrayMessage: (part) => ({
    notes: (part.contacts ?? []).slice(0, MOST_CONTACTS).map(contact),
  }),
  pollCreationMessage: poll,
  pollCreationMessageV2: poll,
  pollCreationMessageV3: poll,
  pollCreationMessageV5: poll,
  eventMessage: event,
  groupInviteMessage: (part) => ({
    text: part.caption ?? '',
    notes: [`invitation to the group ${part.groupName ?? part.groupJid ?? ''}`],
  }),
  productMessage: (part) => ({ notes: [`product: ${part.product?.title ?? 'without a name'}`] }),
  orderMessage: (part) => ({
    text: part.message ?? '',
    notes: [`order: ${part.orderTitle ?? `${part.itemCount ?? 0} item(s)`}`],
  }),

  buttonsResponseMessage: (part) => lines(part.selectedDisplayText ?? part.selectedButtonId),
  templateButtonReplyMessage: (part) => lines(part.selectedDisplayText ?? part.selectedId),
  listResponseMessage: (part) => lines(part.title ?? part.singleSelectReply?.selectedRowId),
  interactiveResponseMessage: ({ body, nativeFlowResponseMessage: form }) => ({
    text: body?.text ?? '',
    notes: answers(form?.paramsJson ?? ''),
  }),

  buttonsMessage: (part) => lines(part.text, part.contentText, part.footerText),
  listMessage: (part) => lines(part.title, part.description, part.footerText),
  interactiveMessage: ({ header, body, footer }) =>
    lines(header?.title, header?.subtitle, body?.text, footer?.text),
  templateMessage: template,
  highlyStructuredMessage: (part) => (part.hydratedHsm ? template(part.hydratedHsm) : {}),
}

/** Fields that hold another message. */
const WRAPPERS = [
  'deviceSentMessage',
  'ephemeralMessage',
  'viewOnceMessage',
  'viewOnceMessageV2',
  'viewOnceMessageV2Extension',
  'documentWithCaptionMessage',
  'editedMessage',
  'associatedChildMessage',
  'lottieStickerMessage',
  'groupMentionedMessage',
  'botInvokeMessage',
  'botForwardedMessage',
  'botTaskMessage',
  'limitSharingMessage',
  'questionMessage',
  'questionReplyMessage',
  'pollCreationMessageV4',
  'commentMessage',
] as const satisfies readonly Field[]

/** Fields that say nothing to people, or nothing that is a message. */
const SILENT: ReadonlySet<Field> = new Set<Field>([
  'messageContextInfo',
  'senderKeyDistributionMessage',
  'fastRatchetKeySenderKeyDistributionMessage',
  'protocolMessage',
  'reactionMessage',
  'encReactionMessage',
  'pollUpdateMessage',
  'pollResultSnapshotMessage',
  'pollResultSnapshotMessageV3',
  'encEventResponseMessage',
  'keepInChatMessage',
  'pinInChatMessage',
  'stickerSyncRmrMessage',
  'albumMessage',
  'call',
  'callLogMesssage',
  'bcallMessage',
  'chat',
  'messageHistoryBundle',
  'messageHistoryNotice',
  'placeholderMessage',
  'statusMentionMessage',
  'groupStatusMentionMessage',
  'groupStatusMessage',
  'groupStatusMessageV2',
  'statusNotificationMessage',
  'statusAddYours',
  'statusQuotedMessage',
  'statusStickerInteractionMessage',
  'statusQuestionAnswerMessage',
])
