/**
 * What the server knows of the linked device: which long-term key may log in as it, and the keys
 * that others need to begin a session with it.
 */

import { jid, parts } from './jids.mjs'
import { big, bytesOf, child, children, node, small } from './nodes.mjs'

export class Linked {
  /** One-time keys that the server says it has, whether it has them or not. */
  claimed = 0
  #preKeys = new Map()

  /**
   * @param owner the person whose account it is
   * @param device its number, 1 and up
   * @param noiseKey the long-term key of its connections
   * @param keys `{registrationId, identity, signedPreKey: {keyId, public, signature}}`
   */
  constructor(owner, device, noiseKey, keys) {
    this.device = device
    this.noiseKey = Buffer.from(noiseKey)
    this.number = jid(parts(owner.number).user, undefined, device)
    this.lid = jid(parts(owner.lid).user, 'lid', device)
    this.keys = keys
  }

  /** @returns {Linked} from the registration that a new client sends */
  static registering(owner, device, noiseKey, data) {
    return new Linked(owner, device, noiseKey, {
      registrationId: small(data.eRegid),
      identity: Buffer.from(data.eIdent),
      signedPreKey: {
        keyId: small(data.eSkeyId),
        public: Buffer.from(data.eSkeyVal),
        signature: Buffer.from(data.eSkeySig),
      },
    })
  }

  get preKeysLeft() {
    return Math.max(this.#preKeys.size, this.claimed)
  }

  mayLogIn(noiseKey, payload) {
    const user = parts(this.number).user
    return (
      this.noiseKey.equals(noiseKey) &&
      String(payload.username) === user &&
      payload.device === this.device
    )
  }

  /** Takes an upload of keys in. */
  upload(stanza) {
    for (const key of children(child(stanza, 'list'), 'key')) {
      const keyId = small(bytesOf(key, 'id'))
      this.#preKeys.set(keyId, { keyId, public: bytesOf(key, 'value') })
    }
    this.#renew(child(stanza, 'skey'))
  }

  /** Takes a new signed key in. */
  rotate(stanza) {
    this.#renew(child(child(stanza, 'rotate'), 'skey'))
  }

  /** @returns a bundle to begin a session with; each one-time key is given out once */
  bundle() {
    const [preKey] = this.#preKeys.values()
    if (preKey) this.#preKeys.delete(preKey.keyId)
    return { ...this.keys, preKey }
  }

  /** @returns {object[]} the bundle as the server hands it out */
  bundleNodes() {
    const { registrationId, identity, signedPreKey, preKey } = this.bundle()
    const one = preKey ? [node('key', {}, keyNodes(preKey))] : []
    return [
      node('registration', {}, big(registrationId, 4)),
      node('type', {}, Buffer.from([5])),
      node('identity', {}, identity),
      node('skey', {}, [...keyNodes(signedPreKey), node('signature', {}, signedPreKey.signature)]),
      ...one,
    ]
  }

  #renew(skey) {
    if (!skey) return
    this.keys.signedPreKey = {
      keyId: small(bytesOf(skey, 'id')),
      public: bytesOf(skey, 'value'),
      signature: bytesOf(skey, 'signature'),
    }
  }
}

function keyNodes({ keyId, public: value }) {
  return [node('id', {}, big(keyId, 3)), node('value', {}, value)]
}

/** @returns the bundle in a retry receipt, or undefined when it carries none */
export function bundleOf(receipt) {
  const keys = child(receipt, 'keys')
  if (!keys) return undefined
  const skey = child(keys, 'skey')
  const key = child(keys, 'key')
  return {
    registrationId: small(bytesOf(receipt, 'registration')),
    identity: bytesOf(keys, 'identity'),
    signedPreKey: {
      keyId: small(bytesOf(skey, 'id')),
      public: bytesOf(skey, 'value'),
      signature: bytesOf(skey, 'signature'),
    },
    preKey: key && { keyId: small(bytesOf(key, 'id')), public: bytesOf(key, 'value') },
  }
}
