/**
 * The media host: encrypted files, put there by devices and fetched by others.
 *
 * An upload goes to `/mms/<kind>/<hash>` and a download comes from the path that the upload was
 * answered with, both as with the real host. A file's hash is checked on upload.
 */

import { getMediaKeys } from 'baileys'
import { createCipheriv, createDecipheriv, createHash, createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'

const HOST = 'https://mmg.whatsapp.net'
const MAC = 10

/** Where a client finds out which version of WhatsApp Web is current, and what it finds. */
const VERSION_PATH = '/sw.js'
export const CURRENT_REVISION = 1_099_999_999

export class MediaHost {
  #server = createServer((request, response) => this.#answer(request, response))
  #files = new Map()
  #tell
  #failures = []
  #next = 1

  /** @param tell called with `{event: 'uploaded' | 'downloaded' | 'violation', …}` */
  constructor(tell) {
    this.#tell = tell
  }

  async start() {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    this.url = `http://127.0.0.1:${this.#server.address().port}`
  }

  async stop() {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  /** The next requests are answered with these HTTP statuses. */
  fail(statuses) {
    this.#failures.push(...statuses)
  }

  /** Keeps an encrypted file. @returns {{url: string, directPath: string}} */
  keep(bytes) {
    const directPath = `/v/t62/${this.#next++}.enc?ccb=1`
    this.#files.set(directPath, bytes)
    return { url: `${HOST}${directPath}`, directPath }
  }

  /** Deletes all files, as the host does after some weeks. */
  expireAll() {
    this.#files.clear()
  }

  /** Exchanges a file's contents, as somebody who owns the host could. */
  replace(directPath, bytes) {
    this.#files.set(directPath, bytes)
  }

  read(directPath) {
    const bytes = this.#files.get(directPath)
    if (!bytes) throw new Error(`no file at ${directPath}`)
    return bytes
  }

  #answer(request, response) {
    const status = this.#failures.shift()
    if (status) {
      request.resume()
      response.writeHead(status).end()
    } else if (request.method === 'POST') this.#upload(request, response)
    else this.#download(request, response)
  }

  async #upload(request, response) {
    const chunks = []
    for await (const chunk of request) chunks.push(chunk)
    const bytes = Buffer.concat(chunks)
    const hash = createHash('sha256').update(bytes).digest('base64url')
    const named = decodeURIComponent(request.url.split('?')[0].split('/').at(-1))
    if (named !== hash) this.#tell({ event: 'violation', text: 'an upload with a wrong hash' })
    const { url, directPath } = this.keep(bytes)
    this.#tell({ event: 'uploaded', size: bytes.length })
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ url, direct_path: directPath }))
  }

  #download(request, response) {
    const version = `"client_revision": ${CURRENT_REVISION}`
    const bytes = request.url === VERSION_PATH ? version : this.#files.get(request.url)
    this.#tell({ event: 'downloaded', path: request.url, found: bytes !== undefined })
    if (bytes) response.end(bytes)
    else response.writeHead(410).end()
  }
}

/** @returns `{bytes, fields}`: the encrypted file, and what a message says about it */
export async function encrypted(plain, kind) {
  const mediaKey = randomBytes(32)
  const { iv, cipherKey, macKey } = await getMediaKeys(mediaKey, kind)
  const cipher = createCipheriv('aes-256-cbc', cipherKey, iv)
  const body = Buffer.concat([cipher.update(plain), cipher.final()])
  const bytes = Buffer.concat([body, mac(macKey, iv, body)])
  const fields = {
    mediaKey,
    fileSha256: sha256(plain),
    fileEncSha256: sha256(bytes),
    fileLength: plain.length,
    mediaKeyTimestamp: Math.floor(Date.now() / 1000),
  }
  return { bytes, fields }
}

/** @returns {Buffer} the file; throws when it is not what the message says it is */
export async function decrypted(bytes, fields, kind) {
  const { iv, cipherKey, macKey } = await getMediaKeys(fields.mediaKey, kind)
  const body = bytes.subarray(0, -MAC)
  if (!mac(macKey, iv, body).equals(bytes.subarray(-MAC))) throw new Error('wrong media MAC')
  if (!sha256(bytes).equals(fields.fileEncSha256)) throw new Error('wrong hash of encrypted media')
  const cipher = createDecipheriv('aes-256-cbc', cipherKey, iv)
  const plain = Buffer.concat([cipher.update(body), cipher.final()])
  if (!sha256(plain).equals(fields.fileSha256)) throw new Error('wrong hash of media')
  return plain
}

function mac(key, iv, body) {
  return createHmac('sha256', key).update(iv).update(body).digest().subarray(0, MAC)
}

function sha256(bytes) {
  return createHash('sha256').update(bytes).digest()
}
