/** Who is on the fake WhatsApp in tests of the whole helper, and what is cleaned up after them. */

import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { SendParams, Welcome } from '../../src/protocol.js'
import { Daemon } from './daemon.js'
import { hush } from '../fake/silent.mjs'
import { FakeWhatsApp } from '../fake/whatsapp.mjs'

export const ME = '15550001111@s.whatsapp.net'
export const MY_LID = '999000111@lid'
export const ANN = '15557770000@s.whatsapp.net'
export const ANN_LID = '888000111@lid'
export const BOB_LID = '777000111@lid'
export const GROUP = '120363000000000001@g.us'

/** A WhatsApp, a folder, and the helpers that live in it; `close` ends them, the last one first. */
export class Place {
  readonly #helpers: Daemon[] = []

  private constructor(
    readonly fake: FakeWhatsApp,
    readonly folder: string,
  ) {}

  static async make(): Promise<Place> {
    hush()
    const fake = await FakeWhatsApp.start()
    fake.people.add({ key: 'ann', number: '15557770000', lid: '888000111', name: 'Ann' })
    fake.people.add({ key: 'bob', number: '4915550001', lid: '777000111', name: 'Bob' })
    fake.people.addGroup({ id: GROUP, subject: 'Friends', members: ['ann', 'bob'] })
    return new Place(fake, await mkdtemp(join(tmpdir(), 'bridge-')))
  }

  /** A place whose folder is that of a device which was linked before. */
  static async linked(): Promise<Place> {
    const place = await Place.make()
    place.fake.seed(place.folder)
    return place
  }

  /** Start a helper. */
  async helper(welcome?: Welcome, fault?: string): Promise<Daemon> {
    const daemon = await Daemon.start(this.fake, this.folder, welcome, fault)
    this.#helpers.push(daemon)
    return daemon
  }

  /** Start a helper and wait until it is connected with WhatsApp. */
  async connected(): Promise<Daemon> {
    const daemon = await this.helper()
    await daemon.state('open')
    await this.fake.until('online')
    return daemon
  }

  async close(): Promise<void> {
    for (const daemon of this.#helpers.toReversed()) await daemon.stop()
    await this.fake.stop()
    await rm(this.folder, { recursive: true })
  }
}

export function text(
  to: string,
  id: string,
  words: string,
): { method: 'send'; params: SendParams } {
  return { method: 'send', params: { to, id, text: words, edits: '', quote: null, file: null } }
}

type Make = () => Promise<Place>

/** A test with a place of its own. */
export function at(make: Make, body: (place: Place) => Promise<void>): () => Promise<void> {
  return async () => {
    const place = await make()
    try {
      await body(place)
      assert.deepEqual(place.fake.violations, [])
    } finally {
      await place.close()
    }
  }
}

export const unlinked: Make = () => Place.make()
export const linked: Make = () => Place.linked()
