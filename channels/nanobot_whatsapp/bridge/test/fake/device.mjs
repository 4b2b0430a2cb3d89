/**
 * A device of somebody else: a Signal identity that can read what the linked device sends and write
 * to it.
 *
 * It is built on the Signal repository that Baileys uses itself, with keys in memory. The linked
 * device always has one address here (its LID), so that there is one session with it, whatever
 * addresses the stanzas carry.
 */

import {
  Curve,
  DEFAULT_CONNECTION_CONFIG,
  addTransactionCapability,
  encodeWAMessage,
  generateRegistrationId,
  generateSignalPubKey,
  proto,
  signedKeyPair,
  unpadRandomMax16,
} from 'baileys'

import { big, node } from './nodes.mjs'
import { SILENT } from './silent.mjs'

export class Device {
  #keys
  #signal
  #nextPreKey = 1
  #toldGroups = new Set()

  constructor() {
    this.identity = Curve.generateKeyPair()
    this.registrationId = generateRegistrationId()
    this.signedPreKey = signedKeyPair(this.identity, 1)
    this.forget()
  }

  /** Loses all sessions: what comes next cannot be read until new ones are made. */
  forget() {
    this.#signal?.close()
    this.#keys = addTransactionCapability(new MemoryKeys(), SILENT, {
      maxCommitRetries: 1,
      delayBetweenTriesMs: 1,
    })
    const creds = {
      signedIdentityKey: this.identity,
      signedPreKey: this.signedPreKey,
      registrationId: this.registrationId,
    }
    this.#signal = DEFAULT_CONNECTION_CONFIG.makeSignalRepository(
      { creds, keys: this.#keys },
      SILENT,
    )
    this.#toldGroups.clear()
  }

  close() {
    this.#signal.close()
  }

  /** @returns {object[]} what the server hands out to whoever wants to begin a session */
  async bundle() {
    const id = this.#nextPreKey++
    const preKey = Curve.generateKeyPair()
    await this.#keys.set({ 'pre-key': { [id]: preKey } })
    const { keyId, keyPair, signature } = this.signedPreKey
    return [
      node('registration', {}, big(this.registrationId, 4)),
      node('type', {}, Buffer.from([5])),
      node('identity', {}, Buffer.from(this.identity.public)),
      node('skey', {}, [
        node('id', {}, big(keyId, 3)),
        node('value', {}, Buffer.from(keyPair.public)),
        node('signature', {}, Buffer.from(signature)),
      ]),
      node('key', {}, [node('id', {}, big(id, 3)), node('value', {}, Buffer.from(preKey.public))]),
    ]
  }

  /** Begins a session with the linked device from a bundle of its keys. */
  async begin(linked, keys) {
    const { registrationId, identity, signedPreKey, preKey } = keys
    await this.#signal.injectE2ESession({
      jid: linked,
      session: {
        registrationId,
        identityKey: generateSignalPubKey(identity),
        signedPreKey: {
          keyId: signedPreKey.keyId,
          publicKey: generateSignalPubKey(signedPreKey.public),
          signature: signedPreKey.signature,
        },
        preKey: preKey && {
          keyId: preKey.keyId,
          publicKey: generateSignalPubKey(preKey.public),
        },
      },
    })
  }

  async knows(linked) {
    return (await this.#signal.validateSession(linked)).exists
  }

  /** @returns an `enc` stanza with the message */
  async encrypt(linked, message, attrs = {}) {
    const { type, ciphertext } = await this.#signal.encryptMessage({
      jid: linked,
      data: encodeWAMessage(message),
    })
    return node('enc', { v: '2', type, ...attrs }, ciphertext)
  }

  /** @returns the `enc` stanzas of a group message: the sender key first where it is needed */
  async encryptForGroup(linked, group, author, message, attrs = {}) {
    const { ciphertext, senderKeyDistributionMessage } = await this.#signal.encryptGroupMessage({
      group,
      meId: author,
      data: encodeWAMessage(message),
    })
    const body = node('enc', { v: '2', type: 'skmsg', ...attrs }, ciphertext)
    const told = `${group} ${author}`
    if (this.#toldGroups.has(told)) return [body]
    this.#toldGroups.add(told)
    const key = await this.encrypt(linked, keyMessage(group, senderKeyDistributionMessage))
    return [key, body]
  }

  /** @returns the message with the sender key in it, encrypted for the linked device alone */
  async encryptAgainForGroup(linked, group, author, message, attrs) {
    const key = await this.#signal.getSenderKeyDistributionMessage({ group, meId: author })
    return this.encrypt(linked, { ...message, ...keyMessage(group, key) }, attrs)
  }

  /** @returns the message in an `enc` stanza of the linked device; throws when it cannot be read */
  async decrypt(linked, group, { attrs, content }) {
    const bytes =
      attrs.type === 'skmsg'
        ? await this.#signal.decryptGroupMessage({ group, authorJid: linked, msg: content })
        : await this.#signal.decryptMessage({ jid: linked, type: attrs.type, ciphertext: content })
    const message = proto.Message.decode(unpadRandomMax16(bytes))
    const key = message.senderKeyDistributionMessage
    if (key) {
      await this.#signal.processSenderKeyDistributionMessage({ authorJid: linked, item: key })
    }
    return message
  }
}

function keyMessage(groupId, axolotlSenderKeyDistributionMessage) {
  return { senderKeyDistributionMessage: { groupId, axolotlSenderKeyDistributionMessage } }
}

class MemoryKeys {
  #kept = new Map()

  get(type, ids) {
    return Object.fromEntries(ids.map((id) => [id, this.#kept.get(`${type} ${id}`)]))
  }

  set(data) {
    for (const [type, entries] of Object.entries(data)) {
      for (const [id, value] of Object.entries(entries)) {
        if (value === null) this.#kept.delete(`${type} ${id}`)
        else this.#kept.set(`${type} ${id}`, value)
      }
    }
  }
}
