/**
 * A device that was linked earlier: its credentials on disk, and a server that knows it.
 *
 * The credentials are made by Baileys itself from the stanza that a real linking ends with, so they
 * are those of a device that has just been linked.
 */

import { BufferJSON, configureSuccessfulPairing, initAuthCreds } from 'baileys'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { Linked } from './linked.mjs'
import { pairSuccess } from './pairing.mjs'

/** One-time keys the server says it has, so that the client need not make hundreds of them. */
const CLAIMED = 500

/** Writes `<folder>/auth/creds.json`. @returns {Linked} */
export function seed(owner, device, folder) {
  const creds = initAuthCreds()
  const { keyPair, keyId, signature } = creds.signedPreKey
  const linked = new Linked(owner, device, creds.noiseKey.public, {
    registrationId: creds.registrationId,
    identity: creds.signedIdentityKey.public,
    signedPreKey: { keyId, public: keyPair.public, signature: Buffer.from(signature) },
  })
  linked.claimed = CLAIMED
  const stanza = pairSuccess(owner, linked, Buffer.from(creds.advSecretKey, 'base64'))
  Object.assign(creds, configureSuccessfulPairing(stanza, creds).creds)
  const auth = join(folder, 'auth')
  mkdirSync(auth, { recursive: true, mode: 0o700 })
  writeFileSync(join(auth, 'creds.json'), JSON.stringify(creds, BufferJSON.replacer), {
    mode: 0o600,
  })
  return linked
}
