/**
 * The spool: events that the daemon has not confirmed yet, one file each.
 *
 * What always holds: when `put` has resolved, the event is on disk under its number; numbers rise
 * in the order in which events became visible here; an event leaves only by `confirm`, and is here
 * at most once. After a restart all unconfirmed events are here again with their numbers. When
 * nothing was left the numbers start over: a number means something within one connection only.
 *
 * It holds a bounded number of events; beyond that `put` fails, as it does for a full disk, and
 * WhatsApp keeps the message.
 */

import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { privateFolder, removeIfThere, setAside, sweep, writeWhole } from './atomic.js'
import type { Clock } from './clock.js'
import { fitted } from './fit.js'
import type { Log } from './log.js'
import { eventKey, type BridgeEvent } from './protocol.js'
import { Serial } from './serial.js'

const NAME = /^(\d{12})\.json$/
const MOST = 10_000

export interface Spooled {
  readonly seq: number
  readonly event: BridgeEvent
}

/** The event could not be kept: there are too many already. */
export class SpoolFull extends Error {
  override readonly name = 'SpoolFull'
}

export class Spool {
  readonly #queue = new Serial()
  /** Key of each event by number, in order of the numbers. */
  readonly #keys = new Map<number, string>()
  readonly #known = new Map<string, number>()
  #last = 0
  #listener: () => void = () => undefined

  private constructor(
    private readonly folder: string,
    private readonly clock: Clock,
    private readonly log: Log,
    private readonly most: number,
  ) {}

  /** Open the spool in its folder, made if need be; files that cannot be read are set aside. */
  static async open(folder: string, clock: Clock, log: Log, most = MOST): Promise<Spool> {
    const spool = new Spool(folder, clock, log, most)
    await privateFolder(folder)
    await sweep(folder)
    for (const seq of numbers(await readdir(folder))) {
      spool.#last = seq
      const event = await spool.#read(seq)
      if (event !== null) spool.#add(seq, event)
    }
    return spool
  }

  /** Unconfirmed events. */
  get size(): number {
    return this.#keys.size
  }

  /** Whether an event with this key (see `eventKey`) is here. */
  has(key: string): boolean {
    return this.#known.has(key)
  }

  /**
   * Bring an event to disk; gives its number, that which it has if it is here already. Rejects if
   * it cannot be kept, with `SpoolFull` or the disk's error.
   */
  put(event: BridgeEvent): Promise<number> {
    return this.#queue.run(async () => {
      const fitting = fitted(event)
      const known = this.#known.get(eventKey(fitting))
      if (known !== undefined) return known
      if (this.#keys.size >= this.most) {
        throw new SpoolFull(`${this.most} messages wait for nanobot to take them`)
      }
      const seq = this.#last + 1
      await writeWhole(this.#path(seq), JSON.stringify(fitting))
      this.#last = seq
      this.#add(seq, fitting)
      this.#listener()
      return seq
    })
  }

  /** Call `listener` after each `put`; one listener at most. */
  onPut(listener: () => void): void {
    this.#listener = listener
  }

  /** The first event with a number above `seq`, null if there is none. */
  async after(seq: number): Promise<Spooled | null> {
    for (const candidate of this.#keys.keys()) {
      if (candidate <= seq) continue
      const event = await this.#read(candidate)
      if (event !== null) return { seq: candidate, event }
      this.#forget(candidate)
    }
    return null
  }

  /** Drop all events up to and including `seq`: they are safe elsewhere. */
  confirm(seq: number): Promise<void> {
    const done: number[] = []
    for (const each of this.#keys.keys()) {
      if (each > seq) break
      done.push(each)
    }
    return this.#queue.run(async () => {
      for (const each of done) await this.#drop(each)
    })
  }

  /** Resolves when all that was asked for so far is done. */
  idle(): Promise<void> {
    return this.#queue.idle()
  }

  async #drop(seq: number): Promise<void> {
    this.#forget(seq)
    try {
      await removeIfThere(this.#path(seq))
    } catch (error) {
      // It is sent once more after a restart, and the daemon knows it then.
      this.log.warning(`a confirmed message stays in the spool: ${String(error)}`)
    }
  }

  async #read(seq: number): Promise<BridgeEvent | null> {
    const path = this.#path(seq)
    const content = await readFile(path, 'utf8')
    const event = parsed(content)
    if (event !== null) return event
    const aside = await setAside(path, 'corrupt', this.clock.now())
    this.log.warning(`a spooled message is damaged; it is kept in ${aside}`)
    return null
  }

  #add(seq: number, event: BridgeEvent): void {
    const key = eventKey(event)
    this.#keys.set(seq, key)
    this.#known.set(key, seq)
  }

  #forget(seq: number): void {
    const key = this.#keys.get(seq)
    this.#keys.delete(seq)
    if (key !== undefined) this.#known.delete(key)
  }

  #path(seq: number): string {
    return join(this.folder, `${String(seq).padStart(12, '0')}.json`)
  }
}

function numbers(names: readonly string[]): readonly number[] {
  const found = names.map((name) => NAME.exec(name)?.[1]).filter((each) => each !== undefined)
  return found.map(Number).sort((a, b) => a - b)
}

function parsed(content: string): BridgeEvent | null {
  try {
    const value: unknown = JSON.parse(content)
    return isEvent(value) ? value : null
  } catch {
    return null
  }
}

/** We wrote it ourselves, so that damage is all this has to find. */
function isEvent(value: unknown): value is BridgeEvent {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'message'
}
