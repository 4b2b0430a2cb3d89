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

import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { privateFolder, removeIfThere, Serial, setAside, sweep, writeWhole } from './disk.js'
import {
  type BridgeEvent,
  eventKey,
  type EventMedia,
  type EventQuote,
  MAX_LINE,
} from './protocol.js'
import type { Clock, Log } from './runtime.js'

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

/*
 * Cutting an event to the length of a line.
 *
 * Nearly all of a message comes from strangers, and a stranger must not be able to make an event
 * that cannot be sent: it would come back for ever. What always holds: the line of a fitted event,
 * with every character escaped, is below `MAX_LINE`; one that is short enough comes back unchanged.
 */

/** What the frame around an event may take. */
const FRAME = 1024

const LONG = 64 * 1024
const MEDIUM = 4 * 1024
const SHORT = 256
const MANY = 128

/** Bytes that the description of a file may take. */
const REF = 64 * 1024

const NOT_FETCHABLE = 'a file whose description is too long to be fetched'
const CUT = 'too long; the rest was cut off'

export function fitted(event: BridgeEvent): BridgeEvent {
  if (Buffer.byteLength(JSON.stringify(event)) <= MAX_LINE - FRAME) return event
  const media = fittedMedia(event.media)
  const lost = event.media !== null && media === null ? [NOT_FETCHABLE] : []
  return {
    ...event,
    ...fittedIds(event),
    name: short(event.name),
    title: short(event.title),
    text: event.text.slice(0, LONG),
    mentions: event.mentions.slice(0, MANY).map(short),
    quote: fittedQuote(event.quote),
    media,
    notes: [...event.notes.slice(0, 8).map((each) => each.slice(0, MEDIUM)), ...lost, CUT],
    unknown: short(event.unknown),
  }
}

function short(text: string): string {
  return text.slice(0, SHORT)
}

function fittedIds(
  event: BridgeEvent,
): Pick<BridgeEvent, 'id' | 'chat' | 'sender' | 'alt' | 'edits' | 'deletes'> {
  return {
    id: short(event.id),
    chat: short(event.chat),
    sender: short(event.sender),
    alt: short(event.alt),
    edits: short(event.edits),
    deletes: short(event.deletes),
  }
}

function fittedQuote(quote: EventQuote | null): EventQuote | null {
  if (quote === null) return null
  const { id, sender, text } = quote
  return { ...quote, id: short(id), sender: short(sender), text: text.slice(0, MEDIUM) }
}

function fittedMedia(media: EventMedia | null): EventMedia | null {
  if (media === null || JSON.stringify(media.ref).length > REF) return null
  return { ...media, mime: short(media.mime), name: short(media.name) }
}
