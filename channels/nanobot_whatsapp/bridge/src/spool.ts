/**
 * The spool: events that the daemon has not confirmed yet, one file each.
 *
 * Invariant: when `put` has returned, the event is on disk under its number; numbers rise; an event
 * leaves only by `confirm`, and is here at most once. After a restart all unconfirmed events are
 * here again with their numbers. When nothing was left the numbers start over: a number means
 * something within one connection only.
 *
 * It holds a bounded number of events; beyond that `put` fails, as it does for a full disk, and
 * WhatsApp keeps the message.
 */

import { readdirSync, readFileSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { privateFolder, setAside, writeWhole } from './disk.js'
import { type MessageEvent, eventKey } from './protocol.js'
import type { Clock, Log } from './runtime.js'

const NAME = /^(\d{12})\.json$/
const MOST = 10_000

export class Spool {
  /** Number of each event by its key (see `eventKey`), in order of the numbers. */
  readonly #numbers = new Map<string, number>()
  #last = 0
  /** Called after each `put` of something new. */
  onPut: () => void = () => undefined

  /** Open the spool in its folder, made if need be; files that cannot be read are set aside. */
  constructor(
    private readonly folder: string,
    private readonly clock: Clock,
    private readonly log: Log,
    private readonly most = MOST,
  ) {
    privateFolder(folder)
    // Names are as long as each other, so that their order is that of the numbers.
    for (const name of readdirSync(folder).toSorted()) {
      const digits = NAME.exec(name)?.[1]
      if (digits === undefined) continue
      this.#last = Number(digits)
      const event = this.#read(this.#last)
      if (event === null) continue
      // A confirmed event that could not be removed may have come again.
      if (this.#numbers.has(eventKey(event))) unlinkSync(this.#path(this.#last))
      else this.#numbers.set(eventKey(event), this.#last)
    }
  }

  /** Unconfirmed events. */
  get size(): number {
    return this.#numbers.size
  }

  /**
   * Bring an event to disk; gives its number, that which it has if it is here already. Throws if
   * the spool is full or the disk refuses.
   */
  put(event: MessageEvent): number {
    const known = this.#numbers.get(eventKey(event))
    if (known !== undefined) return known
    if (this.size >= this.most) {
      throw new Error(`${this.most} messages are still waiting for nanobot`)
    }
    writeWhole(this.#path(this.#last + 1), JSON.stringify(event))
    this.#last += 1
    this.#numbers.set(eventKey(event), this.#last)
    this.onPut()
    return this.#last
  }

  /** The first event with a number above `seq`, null if there is none. */
  after(seq: number): { readonly seq: number; readonly event: MessageEvent } | null {
    for (const [key, candidate] of this.#numbers) {
      if (candidate <= seq) continue
      const event = this.#read(candidate)
      if (event !== null) return { seq: candidate, event }
      this.#numbers.delete(key)
    }
    return null
  }

  /** Drop all events up to and including `seq`: they are safe elsewhere. */
  confirm(seq: number): void {
    for (const [key, each] of this.#numbers) {
      if (each > seq) break
      this.#numbers.delete(key)
      try {
        unlinkSync(this.#path(each))
      } catch (error) {
        // It is sent once more after a restart, and the daemon knows it then.
        this.log('warning', `a confirmed message stays in the spool: ${String(error)}`)
      }
    }
  }

  #read(seq: number): MessageEvent | null {
    const path = this.#path(seq)
    const event = parsed(readFileSync(path, 'utf8'))
    if (event !== null) return event
    const aside = setAside(path, 'corrupt', this.clock)
    this.log('warning', `a spooled message is damaged and was moved to ${aside}`)
    return null
  }

  #path(seq: number): string {
    return join(this.folder, `${String(seq).padStart(12, '0')}.json`)
  }
}

/** We wrote it ourselves, so that damage is all this has to find. */
function parsed(content: string): MessageEvent | null {
  try {
    const value = JSON.parse(content) as Partial<MessageEvent> | null
    return value?.kind === 'message' ? (value as MessageEvent) : null
  } catch {
    return null
  }
}
