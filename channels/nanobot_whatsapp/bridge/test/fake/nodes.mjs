/** Small readers and writers of stanzas (`{tag, attrs, content}`). */

import { getBinaryNodeChild, getBinaryNodeChildren } from 'baileys'

export const child = getBinaryNodeChild
export const children = getBinaryNodeChildren

export function node(tag, attrs = {}, content = undefined) {
  return { tag, attrs, content }
}

/** @returns {Buffer} the bytes of a child, empty when there is none */
export function bytesOf(parent, tag) {
  const content = child(parent, tag)?.content
  return content === undefined ? Buffer.alloc(0) : Buffer.from(content)
}

/** @returns {Buffer} a number as big-endian bytes */
export function big(number, size) {
  const bytes = Buffer.alloc(size)
  bytes.writeUIntBE(number, 0, size)
  return bytes
}

/** @returns {number} big-endian bytes as a number */
export function small(bytes) {
  return bytes.length ? Buffer.from(bytes).readUIntBE(0, bytes.length) : 0
}

/** @returns {string} the time as WhatsApp writes it: whole seconds */
export function stamp(seconds = Date.now() / 1000) {
  return String(Math.floor(seconds))
}
