/**
 * What a message says: text, a file, notes in words, and what it refers to.
 *
 * WhatsApp has about a hundred kinds of messages. What always holds: each of them is read here, is
 * known to be nothing for people, or is named as unknown; none is dropped for want of knowing it.
 */

import type { proto } from 'baileys'
import type { EventMedia, MediaKind, MediaRef } from './protocol.js'

/** Characters of the longest text that is passed on. */
const LONGEST = 64 * 1024
const CUT = 'the message was too long; the rest was cut off'
const DEEPEST = 8

export interface Content {
  readonly text: string
  readonly media: EventMedia | null
  readonly notes: readonly string[]
  readonly context: proto.IContextInfo | null
  /** The field that holds a kind which is not known here, else ''. */
  readonly unknown: string
}

type Found = Partial<Content>
type Field = keyof proto.IMessage
type Readers = { readonly [F in Field]?: (part: NonNullable<proto.IMessage[F]>) => Found }

/** What the message says; null if it says nothing to people. */
export function contentOf(message: proto.IMessage): Content | null {
  const inner = unwrapped(message)
  const fields = fieldsOf(inner).filter((field) => !SILENT.has(field))
  for (const field of fields) {
    const found = read(inner, field)
    if (found !== null) return whole(found)
  }
  return fields[0] === undefined ? null : whole({ unknown: fields[0] })
}

/** The message inside of those that only wrap another (disappearing, view once, edited…). */
export function unwrapped(message: proto.IMessage): proto.IMessage {
  let inner = message
  for (let depth = 0; depth < DEEPEST; depth++) {
    const next = wrappedIn(inner)
    if (next === null) return inner
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

function wrappedIn(message: proto.IMessage): proto.IMessage | null {
  for (const field of WRAPPERS) {
    const inner = message[field]?.message
    if (inner) return inner
  }
  return null
}

function fieldsOf(message: proto.IMessage): readonly Field[] {
  const fields = Object.keys(message) as Field[]
  return fields.filter((field) => message[field] !== null && message[field] !== undefined)
}

function read(message: proto.IMessage, field: Field): Found | null {
  // That the reader fits the part is seen to where the readers are listed.
  const reader = READERS[field] as ((part: unknown) => Found) | undefined
  return reader === undefined ? null : reader(message[field])
}

function whole(found: Found): Content {
  const text = found.text ?? ''
  const notes = found.notes ?? []
  return {
    text: text.slice(0, LONGEST),
    media: found.media ?? null,
    notes: text.length > LONGEST ? [...notes, CUT] : notes,
    context: found.context ?? null,
    unknown: found.unknown ?? '',
  }
}

function file<P extends FilePart>(kind: (part: P) => FileKind): (part: P) => Found {
  return (part) => {
    const media = mediaOf(kind(part), part)
    const notes = media === null ? [`a file (${kind(part)}) that cannot be fetched`] : []
    return { text: part.caption ?? '', media, notes, context: part.contextInfo ?? null }
  }
}

interface Part {
  readonly contextInfo?: proto.IContextInfo | null
}

/** A reader for parts that become a note. */
function note<P extends Part>(words: (part: P) => string): (part: P) => Found {
  return (part) => ({ notes: [words(part)], context: part.contextInfo ?? null })
}

/** A reader for parts that have several texts, one above the other. */
function texts<P extends Part>(
  lines: (part: P) => readonly (string | null | undefined)[],
): (part: P) => Found {
  return (part) => ({ text: joined(lines(part)), context: part.contextInfo ?? null })
}

function joined(lines: readonly (string | null | undefined)[]): string {
  return lines.filter((line) => line !== null && line !== undefined && line !== '').join('\n')
}

const poll = note(pollNote)
const video = file<proto.Message.IVideoMessage>(() => 'video')

function template(part: proto.Message.ITemplateMessage): Found {
  const hydrated = part.hydratedTemplate ?? part.hydratedFourRowTemplate
  const { hydratedTitleText, hydratedContentText, hydratedFooterText } = hydrated ?? {}
  const text = joined([hydratedTitleText, hydratedContentText, hydratedFooterText])
  return { text, context: part.contextInfo ?? null }
}

const READERS: Readers = {
  conversation: (text) => ({ text }),
  extendedTextMessage: (part) => ({ text: part.text ?? '', context: part.contextInfo ?? null }),

  imageMessage: file<proto.Message.IImageMessage>(() => 'image'),
  videoMessage: video,
  ptvMessage: video,
  audioMessage: file<proto.Message.IAudioMessage>((part) => (part.ptt ? 'voice' : 'audio')),
  documentMessage: file<proto.Message.IDocumentMessage>(() => 'document'),
  stickerMessage: file<proto.Message.IStickerMessage>(() => 'sticker'),

  locationMessage: note((part) => locationNote('location', part)),
  liveLocationMessage: (part) => ({
    text: part.caption ?? '',
    notes: [locationNote('live location', part)],
    context: part.contextInfo ?? null,
  }),
  contactMessage: note(contactNote),
  contactsArrayMessage: (part) => ({
    notes: (part.contacts ?? []).slice(0, 20).map(contactNote),
    context: part.contextInfo ?? null,
  }),
  pollCreationMessage: poll,
  pollCreationMessageV2: poll,
  pollCreationMessageV3: poll,
  pollCreationMessageV5: poll,
  eventMessage: note((part) => eventNote(part, numberOf(part.startTime))),
  groupInviteMessage: (part) => ({
    text: part.caption ?? '',
    notes: [inviteNote(part)],
    context: part.contextInfo ?? null,
  }),
  productMessage: note((part) => `product: ${part.product?.title ?? 'without a name'}`),
  orderMessage: note((part) => `order: ${part.orderTitle ?? `${part.itemCount ?? 0} item(s)`}`),

  buttonsResponseMessage: texts((part) => [part.selectedDisplayText ?? part.selectedButtonId]),
  templateButtonReplyMessage: texts((part) => [part.selectedDisplayText ?? part.selectedId]),
  listResponseMessage: texts((part) => [part.title ?? part.singleSelectReply?.selectedRowId]),
  interactiveResponseMessage: texts((part) => [
    part.body?.text ?? part.nativeFlowResponseMessage?.paramsJson,
  ]),

  buttonsMessage: texts((part) => [part.text, part.contentText, part.footerText]),
  listMessage: texts((part) => [part.title, part.description, part.footerText]),
  interactiveMessage: texts((part) => [
    part.header?.title,
    part.header?.subtitle,
    part.body?.text,
    part.footer?.text,
  ]),
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

/* What has no text and no file, in words. */

const LONGEST_NOTE = 4096
const LONGEST_CARD = 8 * 1024
const MOST_PHONES = 10
const PHONE = /^(?:item\d{1,3}\.)?TEL(?:;[^:]*)?:(.*)$/i

interface Place {
  readonly degreesLatitude?: number | null
  readonly degreesLongitude?: number | null
  readonly name?: string | null
  readonly address?: string | null
}

/** `location: 52.52, 13.4 (Town Hall, High Street 1)` */
export function locationNote(what: string, place: Place): string {
  const { degreesLatitude, degreesLongitude, name, address } = place
  const words = [name, address].filter((each) => typeof each === 'string' && each !== '')
  const where = words.length === 0 ? '' : ` (${words.join(', ')})`
  return bounded(`${what}: ${degrees(degreesLatitude)}, ${degrees(degreesLongitude)}${where}`)
}

/** `contact: Ada, +15550001111` */
export function contactNote(contact: proto.Message.IContactMessage): string {
  // Line by line, so that no part of the pattern can go over the whole card again and again.
  const lines = (contact.vcard ?? '').slice(0, LONGEST_CARD).split(/\r\n?|\n/)
  const phones = lines.flatMap((line) => PHONE.exec(line)?.[1]?.trim() ?? []).slice(0, MOST_PHONES)
  return bounded(`contact: ${[contact.displayName ?? '', ...phones].filter(Boolean).join(', ')}`)
}

/** `poll: Lunch? (pizza / soup)` */
export function pollNote(poll: proto.Message.IPollCreationMessage): string {
  const options = (poll.options ?? []).map((option) => option.optionName ?? '')
  return bounded(`poll: ${poll.name ?? ''} (${options.join(' / ')})`)
}

/** `event: Picnic, 2030-05-01T10:00:00.000Z, the park: bring cake`; `start` in Unix seconds. */
export function eventNote(event: proto.Message.IEventMessage, start: number): string {
  const when = start > 0 && start < 1e11 ? new Date(start * 1000).toISOString() : ''
  const facts = [event.name, when, event.location?.name, event.isCanceled ? 'cancelled' : '']
  const told = event.description ? `: ${event.description}` : ''
  return bounded(`event: ${facts.filter(Boolean).join(', ')}${told}`)
}

export function inviteNote(invite: proto.Message.IGroupInviteMessage): string {
  return bounded(`invitation to the group ${invite.groupName ?? invite.groupJid ?? ''}`)
}

function degrees(value: number | null | undefined): string {
  return String(Number((value ?? 0).toFixed(6)))
}

function bounded(text: string): string {
  return text.slice(0, LONGEST_NOTE)
}

/* The description of an inbound file, as it stands in a message and as a reference for later. */

export type FileKind = MediaKind

/** A number as it stands in a message. */
type LongNumber = number | { toNumber(): number } | null | undefined

/** What the kinds of files have in common. */
export interface FilePart {
  readonly caption?: string | null
  readonly contextInfo?: proto.IContextInfo | null
  readonly url?: string | null
  readonly directPath?: string | null
  readonly mediaKey?: Uint8Array | null
  readonly fileSha256?: Uint8Array | null
  readonly fileLength?: LongNumber
  readonly mimetype?: string | null
  readonly fileName?: string | null
  readonly title?: string | null
}

/** Where a file lies and how it is opened. */
export interface FileRef {
  readonly kind: MediaKind
  /** Path on WhatsApp's media host. */
  readonly path: string
  readonly url: string
  readonly key: Uint8Array
  readonly sha256: Uint8Array
}

/** The file of a message; null if too little is said of it for it to be fetched. */
export function mediaOf(kind: FileKind, part: FilePart): EventMedia | null {
  const { mediaKey: key, fileSha256: sha256 } = part
  const [path, url] = [some(part.directPath), some(part.url)]
  if (!key?.length || !sha256?.length || path + url === '') return null
  const name = some(part.fileName ?? part.title)
  const size = numberOf(part.fileLength)
  const ref = refOf({ kind, path, url, key, sha256 })
  return { kind, mime: some(part.mimetype), name, size, ref }
}

function some(text: string | null | undefined): string {
  return text ?? ''
}

/** The reference as it travels. */
export function refOf(file: FileRef): MediaRef {
  return {
    kind: file.kind,
    path: file.path,
    url: file.url,
    key: Buffer.from(file.key).toString('base64'),
    sha256: Buffer.from(file.sha256).toString('base64'),
  }
}

/** The reference that came back; null if it is none of ours. */
export function fileOf(ref: MediaRef): FileRef | null {
  const { kind, path, url, key, sha256 } = ref
  if (!isKind(kind) || typeof path !== 'string' || typeof url !== 'string') return null
  if (typeof key !== 'string' || typeof sha256 !== 'string') return null
  const bytes = { key: Buffer.from(key, 'base64'), sha256: Buffer.from(sha256, 'base64') }
  if (bytes.key.length !== 32 || bytes.sha256.length !== 32) return null
  return { kind, path, url, ...bytes }
}

function isKind(value: unknown): value is MediaKind {
  return typeof value === 'string' && KINDS.has(value)
}

const KINDS = new Set<string>(['image', 'audio', 'voice', 'video', 'document', 'sticker'])

/** A number of the protocol; 0 for one that is absent, negative or too large. */
export function numberOf(value: LongNumber): number {
  const number = typeof value === 'object' ? (value?.toNumber() ?? 0) : (value ?? 0)
  return Number.isSafeInteger(number) && number > 0 ? number : 0
}
