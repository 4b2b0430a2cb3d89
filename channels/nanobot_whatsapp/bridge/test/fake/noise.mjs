/**
 * The server's side of WhatsApp's Noise_XX handshake, and the framing around it.
 *
 * A `Trust` is what a client must know beforehand: the root key that signs the certificates. Every
 * fake has its own, made when it starts, so a client that was not told to trust it refuses it, and
 * the fake can never pass for anybody else's server.
 *
 * A frame is three bytes of length and a payload; the first message of a connection begins with a
 * header of four bytes ("WA", two version bytes), before which routing information may stand.
 */

import { Curve, NOISE_MODE, aesDecryptGCM, aesEncryptGCM, hkdf, proto, sha256 } from 'baileys'

const NOTHING = Buffer.alloc(0)
const HEADER = 4
const ROUTING = 'ED'

/** The keys and certificates of one fake server. */
export class Trust {
  #root = Curve.generateKeyPair()
  #intermediate = Curve.generateKeyPair()

  constructor() {
    this.static = Curve.generateKeyPair()
    this.chain = proto.CertChain.encode({
      intermediate: certificate(this.#root, {
        serial: 1,
        issuerSerial: 0,
        key: this.#intermediate.public,
      }),
      leaf: certificate(this.#intermediate, {
        serial: 2,
        issuerSerial: 1,
        key: this.static.public,
      }),
    }).finish()
  }

  /** The public root key, hex. */
  get root() {
    return Buffer.from(this.#root.public).toString('hex')
  }
}

function certificate(signer, details) {
  const bytes = proto.CertChain.NoiseCertificate.Details.encode(details).finish()
  return { details: bytes, signature: Curve.sign(signer.private, bytes) }
}

/** Bytes in, payloads out: cuts what a socket delivers into frames and drops the header. */
export class Frames {
  #bytes = NOTHING
  #header = null

  /** @returns {Buffer[]} the payloads that are complete now */
  take(bytes) {
    this.#bytes = Buffer.concat([this.#bytes, bytes])
    if (this.#header === null && !this.#takeHeader()) return []
    const frames = []
    while (this.#bytes.length >= 3) {
      const size = this.#bytes.readUIntBE(0, 3)
      if (this.#bytes.length < size + 3) break
      frames.push(this.#bytes.subarray(3, size + 3))
      this.#bytes = this.#bytes.subarray(size + 3)
    }
    return frames
  }

  get header() {
    return this.#header
  }

  #takeHeader() {
    let start = 0
    if (this.#bytes.subarray(0, 2).toString() === ROUTING) {
      if (this.#bytes.length < 7) return false
      start = 7 + this.#bytes.readUIntBE(4, 3)
    }
    if (this.#bytes.length < start + HEADER) return false
    this.#header = this.#bytes.subarray(start, start + HEADER)
    this.#bytes = this.#bytes.subarray(start + HEADER)
    return true
  }
}

/** @returns {Buffer} the payload as a frame */
export function framed(payload) {
  const size = Buffer.alloc(3)
  size.writeUIntBE(payload.length, 0, 3)
  return Buffer.concat([size, payload])
}

/** One connection's keys, from the first hello to the end. */
export class Noise {
  #trust
  #ephemeral = Curve.generateKeyPair()
  #hash = Buffer.from(NOISE_MODE)
  #salt = this.#hash
  #key = this.#hash
  #count = 0
  #transport = null

  constructor(trust) {
    this.#trust = trust
  }

  /** Answers the client's hello; `header` is what its first frame stood behind. */
  hello(header, frame) {
    const client = proto.HandshakeMessage.decode(frame).clientHello.ephemeral
    for (const part of [header, client, this.#ephemeral.public]) this.#mixHash(part)
    this.#mixKey(Curve.sharedKey(this.#ephemeral.private, client))
    const encrypted = this.#seal(this.#trust.static.public)
    this.#mixKey(Curve.sharedKey(this.#trust.static.private, client))
    const payload = this.#seal(this.#trust.chain)
    return proto.HandshakeMessage.encode({
      serverHello: { ephemeral: this.#ephemeral.public, static: encrypted, payload },
    }).finish()
  }

  /** @returns the client's long-term key and its `ClientPayload`; frames are encrypted now */
  finish(frame) {
    const { clientFinish } = proto.HandshakeMessage.decode(frame)
    const key = this.#open(clientFinish.static)
    this.#mixKey(Curve.sharedKey(this.#ephemeral.private, key))
    const payload = proto.ClientPayload.decode(this.#open(clientFinish.payload))
    const keys = hkdf(NOTHING, 64, { salt: this.#salt, info: '' })
    this.#transport = { read: keys.subarray(0, 32), write: keys.subarray(32), reads: 0, writes: 0 }
    return { key, payload }
  }

  encrypt(bytes) {
    const { write } = this.#transport
    return aesEncryptGCM(bytes, write, nonce(this.#transport.writes++), NOTHING)
  }

  decrypt(bytes) {
    const { read } = this.#transport
    return aesDecryptGCM(bytes, read, nonce(this.#transport.reads++), NOTHING)
  }

  #mixHash(data) {
    this.#hash = sha256(Buffer.concat([this.#hash, data]))
  }

  #mixKey(secret) {
    const keys = hkdf(Buffer.from(secret), 64, { salt: this.#salt, info: '' })
    this.#salt = keys.subarray(0, 32)
    this.#key = keys.subarray(32)
    this.#count = 0
  }

  #seal(plain) {
    const sealed = aesEncryptGCM(plain, this.#key, nonce(this.#count++), this.#hash)
    this.#mixHash(sealed)
    return sealed
  }

  #open(sealed) {
    const plain = aesDecryptGCM(sealed, this.#key, nonce(this.#count++), this.#hash)
    this.#mixHash(sealed)
    return plain
  }
}

function nonce(count) {
  const bytes = Buffer.alloc(12)
  bytes.writeUInt32BE(count, 8)
  return bytes
}
