/** The description of an inbound file, as it stands in a message and as a reference for later. */

import type { proto } from 'baileys'
import type { EventMedia, MediaKind, MediaRef } from './protocol.js'

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
