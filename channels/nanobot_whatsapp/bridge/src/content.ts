/**
 * What a message says: text, a file, notes in words, and what it refers to.
 *
 * WhatsApp has about a hundred kinds of messages. What always holds: each of them is read here, is
 * known to be nothing for people, or is named as unknown; none is dropped for want of knowing it.
 */

import type { proto } from 'baileys'
import { mediaOf, numberOf, type FileKind, type FilePart } from './files.js'
import type { EventMedia } from './protocol.js'
import { contactNote, eventNote, inviteNote, locationNote, pollNote } from './notes.js'

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
