/**
 * What is known of groups: who is in them, for sending, and their names, for texts.
 *
 * What always holds: a list of members is never older than the last change that WhatsApp told us
 * of, nor than `FRESH`; the number of groups kept is bounded.
 */

import type { GroupMetadata } from 'baileys'
import type { Clock } from './clock.js'
import { isGroup } from './jids.js'
import type { Jid } from './protocol.js'

const FRESH = 10 * 60_000
const MOST_GROUPS = 200
const MOST_NAMES = 2000

/** Asks WhatsApp about a group. */
export type AskGroup = (group: Jid) => Promise<GroupMetadata>

interface Known {
  readonly metadata: GroupMetadata
  readonly since: number
}

export class Groups {
  readonly #known = new Map<Jid, Known>()
  readonly #names = new Map<Jid, string>()
  readonly #asking = new Set<Jid>()

  constructor(private readonly clock: Clock) {}

  /** The group's name, '' if it is not known yet. */
  nameOf(group: Jid): string {
    return this.#names.get(group) ?? ''
  }

  /** The group's members and properties; rejects as `ask` does. */
  async metadata(group: Jid, ask: AskGroup): Promise<GroupMetadata> {
    const known = this.#known.get(group)
    if (known !== undefined && this.clock.now() - known.since < FRESH) return known.metadata
    const metadata = await ask(group)
    put(this.#known, group, { metadata, since: this.clock.now() }, MOST_GROUPS)
    this.named(group, metadata.subject)
    return metadata
  }

  /** Find out a group's name for next time, if it is not known; never rejects. */
  async meet(group: Jid, ask: AskGroup): Promise<void> {
    if (!isGroup(group) || this.#names.has(group) || this.#asking.has(group)) return
    this.#asking.add(group)
    try {
      await this.metadata(group, ask)
    } catch {
      // Only for a name: it is asked for again with the next message.
    } finally {
      this.#asking.delete(group)
    }
  }

  named(group: Jid, name: string): void {
    put(this.#names, group, name, MOST_NAMES)
  }

  /** Something has changed in the group. */
  changed(group: Jid): void {
    this.#known.delete(group)
  }

  /** We were away and may have missed changes. */
  allChanged(): void {
    this.#known.clear()
  }
}

function put<T>(map: Map<Jid, T>, key: Jid, value: T, most: number): void {
  map.delete(key)
  map.set(key, value)
  const oldest = map.keys().next()
  if (map.size > most && !oldest.done) map.delete(oldest.value)
}
