/**
 * Fetching inbound files: over HTTPS from WhatsApp's own hosts, decrypted into a file.
 *
 * Invariant: no request goes anywhere else, whatever a sender wrote into the message; never
 * more than `limit` bytes are written; a file that is returned is what the sender sent (its
 * authentication code and its hash are right); a failure leaves no file.
 */

import {
  createDecipheriv,
  createHash,
  createHmac,
  type Decipher,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'
import { open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { DEFAULT_ORIGIN, getMediaKeys } from 'baileys'
import { RequestFailed, wordsOf } from './errors.js'
import type { EventMedia, MediaRef } from './protocol.js'

const HOST = 'mmg.whatsapp.net'
const HOSTS = '.whatsapp.net'
/** Bytes of the authentication code behind the ciphertext, and how much padding may come before. */
const CODE = 10
const PADDING = 16
const PATIENCE = 300_000
const LATER = 30

/** Characters of the longest name or type of a file, and of the longest address. */
const LONGEST_NAME = 256
const LONGEST_ADDRESS = 4096

/** What the kinds of files have in common in a message. */
export interface FilePart {
  readonly caption?: string | null
  readonly url?: string | null
  readonly directPath?: string | null
  readonly mediaKey?: Uint8Array | null
  readonly fileSha256?: Uint8Array | null
  readonly fileLength?: number | { toNumber(): number } | null
  readonly mimetype?: string | null
  readonly fileName?: string | null
  readonly title?: string | null
}

/** The file of a message; null if what is said of it is not enough to fetch it. */
export function mediaOf(kind: MediaRef['kind'], part: FilePart): EventMedia | null {
  const { mediaKey: key, fileSha256: sha256 } = part
  const [path, url] = [cut(part.directPath, LONGEST_ADDRESS), cut(part.url, LONGEST_ADDRESS)]
  if (key?.length !== 32 || sha256?.length !== 32 || path + url === '') return null
  const size = Number(part.fileLength ?? 0)
  return {
    kind,
    mime: cut(part.mimetype, LONGEST_NAME),
    name: cut(part.fileName ?? part.title, LONGEST_NAME),
    size: Number.isSafeInteger(size) && size > 0 ? size : 0,
    ref: { kind, path, url, key: base64(key), sha256: base64(sha256) },
  }
}

function cut(text: string | null | undefined, most: number): string {
  return (text ?? '').slice(0, most)
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64')
}

/**
 * Fetch a file of at most `limit` bytes into `folder/name`, which must exist and be private; gives
 * its path below `folder`. Rejects with `RequestFailed`.
 */
export async function download(
  folder: string,
  name: string,
  ref: MediaRef,
  limit: number,
): Promise<{ readonly path: string; readonly size: number }> {
  const url = urlOf(ref)
  if (url === null) throw new RequestFailed('refused', 'this is not a file on WhatsApp')
  const path = join(name, randomBytes(12).toString('hex'))
  const whole = join(folder, path)
  const abort = new AbortController()
  try {
    const signal = AbortSignal.any([abort.signal, AbortSignal.timeout(PATIENCE)])
    return { path, size: await save(ref, await bodyOf(url, limit, signal), whole, limit) }
  } catch (error) {
    await rm(whole, { force: true })
    if (error instanceof RequestFailed) throw error
    const words = `the file could not be downloaded from WhatsApp: ${wordsOf(error)}`
    throw new RequestFailed('later', words, LATER)
  } finally {
    abort.abort()
  }
}

/** The size of the file that was written. */
async function save(ref: MediaRef, body: Body, path: string, limit: number): Promise<number> {
  const handle = await open(path, 'wx', 0o600)
  try {
    let size = 0
    for await (const bytes of decrypted(body, ref)) {
      size += bytes.length
      if (size > limit) throw tooLarge(limit)
      await handle.writeFile(bytes)
    }
    return size
  } finally {
    await handle.close()
  }
}

/** The address of a file; null if it is not on WhatsApp's hosts. */
export function urlOf({ path, url }: Pick<MediaRef, 'path' | 'url'>): string | null {
  if (/^\/[^@\s\\]*$/.test(path)) return `https://${HOST}${path}`
  const parsed = path === '' && URL.canParse(url) ? new URL(url) : null
  if (parsed?.protocol !== 'https:' || !parsed.hostname.endsWith(HOSTS)) return null
  const plain = parsed.username === '' && parsed.password === '' && parsed.port === ''
  return plain ? parsed.href : null
}

type Body = AsyncIterable<Uint8Array>

async function bodyOf(url: string, limit: number, signal: AbortSignal): Promise<Body> {
  const headers = { Origin: DEFAULT_ORIGIN }
  const response = await fetch(url, { headers, redirect: 'error', signal })
  const { status, body } = response
  if (status === 429 || status >= 500) throw new Error(`the host answered with status ${status}`)
  if (!response.ok || body === null) {
    throw new RequestFailed('refused', `WhatsApp no longer has the file (${status})`)
  }
  const length = Number(response.headers.get('content-length') ?? 0)
  if (length > limit + CODE + PADDING) throw tooLarge(limit)
  return body
}

async function* decrypted(body: Body, { kind, key, sha256 }: MediaRef): Body {
  const secret = Buffer.from(key, 'base64')
  const type = kind === 'voice' ? 'audio' : kind
  const { cipherKey, iv, macKey } = await getMediaKeys(secret, type)
  if (!macKey) throw damaged()
  const cipher = createDecipheriv('aes-256-cbc', cipherKey, iv)
  const code = createHmac('sha256', macKey).update(iv)
  const hash = createHash('sha256')
  let held = Buffer.alloc(0)
  for await (const chunk of body) {
    const bytes = Buffer.concat([held, chunk])
    const ready = bytes.subarray(0, Math.max(0, bytes.length - CODE))
    held = bytes.subarray(ready.length)
    code.update(ready)
    const plain = cipher.update(ready)
    hash.update(plain)
    yield plain
  }
  if (!equal(code.digest().subarray(0, CODE), held)) throw damaged()
  const last = ending(cipher)
  if (!equal(hash.update(last).digest(), Buffer.from(sha256, 'base64'))) throw damaged()
  yield last
}

function ending(cipher: Decipher): Uint8Array {
  try {
    return cipher.final()
  } catch {
    // The sender padded it wrongly and signed that.
    throw damaged()
  }
}

function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b)
}

function tooLarge(limit: number): RequestFailed {
  return new RequestFailed('refused', `the file is larger than ${limit} bytes`)
}

function damaged(): RequestFailed {
  return new RequestFailed('refused', 'the file is damaged')
}
