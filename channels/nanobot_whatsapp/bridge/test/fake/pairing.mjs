/**
 * Linking a new device, from the phone's side.
 *
 * Both ways end in the same place: the phone knows a secret of the new device (from the QR code, or
 * agreed upon with the help of the eight-character code), signs the device's identity with the
 * account's key, and the server hands this to the device as `pair-success`.
 */

import {
  Curve,
  WA_ADV_ACCOUNT_SIG_PREFIX,
  aesDecryptCTR,
  aesDecryptGCM,
  aesEncryptCTR,
  derivePairingCodeKey,
  hkdf,
  hmacSign,
  proto,
} from 'baileys'
import { randomBytes } from 'node:crypto'

import { SERVER } from './jids.mjs'
import { bytesOf, child, node, stamp } from './nodes.mjs'

/** @returns what a QR code says: `{ref, noiseKey, identity, secret}` */
export function readQr(text) {
  const [ref, noiseKey, identity, secret] = text.slice(text.indexOf('#') + 1).split(',')
  if (!secret) throw new Error('this is no QR code of a device that wants to be linked')
  const bytes = (part) => Buffer.from(part, 'base64')
  return { ref, noiseKey: bytes(noiseKey), identity: bytes(identity), secret: bytes(secret) }
}

/** @returns the stanza that makes a device a member of the account */
export function pairSuccess(owner, linked, secret) {
  const account = owner.devices.get(0).identity
  const details = proto.ADVDeviceIdentity.encode({
    rawId: 1,
    timestamp: Math.floor(Date.now() / 1000),
    keyIndex: linked.device,
  }).finish()
  const signed = Buffer.concat([WA_ADV_ACCOUNT_SIG_PREFIX, details, linked.keys.identity])
  const identity = proto.ADVSignedDeviceIdentity.encode({
    details,
    accountSignatureKey: account.public,
    accountSignature: Curve.sign(account.private, signed),
  }).finish()
  const envelope = proto.ADVSignedDeviceIdentityHMAC.encode({
    details: identity,
    hmac: hmacSign(identity, secret),
  }).finish()
  const content = [
    node('device-identity', {}, Buffer.from(envelope)),
    node('device', { jid: linked.number, lid: linked.lid }),
    node('platform', { name: 'android' }),
  ]
  const attrs = { from: SERVER, type: 'set', id: 'pair-1', xmlns: 'md', t: stamp() }
  return node('iq', attrs, [node('pair-success', {}, content)])
}

/** The phone's half of linking with a code; `hello` is the device's first stanza. */
export class CodePairing {
  #companion
  #ephemeral = Curve.generateKeyPair()
  #owner
  #shared

  constructor(owner, hello) {
    const stage = child(hello, 'link_code_companion_reg')
    this.#owner = owner
    this.#companion = bytesOf(stage, 'link_code_pairing_wrapped_companion_ephemeral_pub')
    this.jid = stage.attrs.jid
    this.ref = randomBytes(16)
  }

  /** What the server answers to the hello. */
  get answer() {
    return [
      node('link_code_companion_reg', { stage: 'companion_hello' }, [
        node('link_code_pairing_ref', {}, this.ref),
      ]),
    ]
  }

  /** Somebody types the code into the phone. @returns the stanza for the device */
  async enter(code) {
    const wrapped = this.#companion
    const companion = aesDecryptCTR(
      wrapped.subarray(48),
      await derivePairingCodeKey(code, wrapped.subarray(0, 32)),
      wrapped.subarray(32, 48),
    )
    this.#shared = Curve.sharedKey(this.#ephemeral.private, companion)
    const salt = randomBytes(32)
    const iv = randomBytes(16)
    const key = await derivePairingCodeKey(code, salt)
    const mine = Buffer.concat([salt, iv, aesEncryptCTR(this.#ephemeral.public, key, iv)])
    const identity = this.#owner.devices.get(0).identity.public
    const content = [
      node('link_code_pairing_ref', {}, this.ref),
      node('primary_identity_pub', {}, Buffer.from(identity)),
      node('link_code_pairing_wrapped_primary_ephemeral_pub', {}, mine),
    ]
    const attrs = { from: SERVER, type: 'link_code_companion_reg', id: 'code-1', t: stamp() }
    return node('notification', attrs, [
      node('link_code_companion_reg', { stage: 'primary_hello' }, content),
    ])
  }

  /** The device's last stanza. @returns {Buffer} the common secret; throws on a wrong code */
  finish(stanza) {
    const stage = child(stanza, 'link_code_companion_reg')
    const bundle = bytesOf(stage, 'link_code_pairing_wrapped_key_bundle')
    const key = hkdf(this.#shared, 32, {
      salt: bundle.subarray(0, 32),
      info: 'link_code_pairing_key_bundle_encryption_key',
    })
    const plain = aesDecryptGCM(bundle.subarray(44), key, bundle.subarray(32, 44), Buffer.alloc(0))
    const own = this.#owner.devices.get(0).identity
    const identities = Curve.sharedKey(own.private, plain.subarray(0, 32))
    const secret = Buffer.concat([this.#shared, identities, plain.subarray(64, 96)])
    return Buffer.from(hkdf(secret, 32, { info: 'adv_secret' }))
  }
}
