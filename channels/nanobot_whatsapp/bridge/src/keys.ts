/**
 * The keys of the Signal protocol, kept in `keys.jsonl`: one line is what was set together.
 *
 * What always holds: when `set` has resolved, all of it is on disk, and none of it when it has
 * rejected; `get` gives copies, the same as after a restart.
 */

import {
  BufferJSON,
  proto,
  type SignalDataSet,
  type SignalDataTypeMap,
  type SignalKeyStore,
} from 'baileys'
import { AppendLog, type LineCodec, type LogState } from './appendlog.js'
import type { Clock } from './clock.js'
import { packed } from './creds.js'
import type { Log } from './log.js'

/** The type under which the names of messages stand whose keys are used up. */
const SEEN = 'nanobot-seen'
const MOST_SEEN = 1000

/** One key: its type, its id, and the value as JSON; null removes it. */
type Entry = readonly [type: string, id: string, json: string | null]
type Change = readonly Entry[]

export class Keys implements SignalKeyStore {
  #learned: (lid: string, number: string) => void = () => undefined
  #failed: (error: unknown) => void = () => undefined

  private constructor(
    private readonly state: KeyState,
    private readonly log: AppendLog<Change>,
  ) {}

  static async open(path: string, clock: Clock, log: Log): Promise<Keys> {
    const state = new KeyState()
    return new Keys(state, await AppendLog.open(path, CODEC, state, clock, log))
  }

  /** Call `learned` with each LID and the number of the same person, without their servers. */
  onLearned(learned: (lid: string, number: string) => void): void {
    this.#learned = learned
  }

  /** Call `failed` when the disk refuses, before `set` rejects; in place of the one before. */
  onFailure(failed: (error: unknown) => void): void {
    this.#failed = failed
  }

  get<T extends keyof SignalDataTypeMap>(
    type: T,
    ids: readonly string[],
  ): Record<string, SignalDataTypeMap[T]> {
    const found: Record<string, SignalDataTypeMap[T]> = {}
    for (const id of ids) {
      const json = this.state.find(type, id)
      if (json !== undefined) found[id] = revived(type, json)
    }
    return found
  }

  async set(data: SignalDataSet): Promise<void> {
    const change = changeOf(data)
    if (change.length === 0) return
    try {
      await this.log.append(change)
    } catch (error) {
      this.#failed(error)
      throw error
    }
    for (const [lid, number] of pairsIn(change)) this.#learned(lid, number)
  }

  /** Whether a message was decrypted (see `seenChange`), as far as that is remembered. */
  seen(name: string): boolean {
    return this.state.find(SEEN, name) !== undefined
  }

  /** The highest id of a pre-key that is kept; 0 if there is none. */
  lastPreKey(): number {
    return Math.max(0, ...this.state.ids('pre-key').map(Number))
  }

  close(): Promise<void> {
    return this.log.close()
  }
}

/** What to set together with the keys that a message has used. */
export function seenChange(name: string): SignalDataSet {
  const change: object = { [SEEN]: { [name]: 1 } }
  return change
}

class KeyState implements LogState<Change> {
  readonly #kept = new Map<string, Map<string, string>>()

  find(type: string, id: string): string | undefined {
    return this.#kept.get(type)?.get(id)
  }

  ids(type: string): readonly string[] {
    return [...(this.#kept.get(type)?.keys() ?? [])]
  }

  apply(change: Change): void {
    for (const [type, id, json] of change) {
      const ofType = this.#kept.get(type) ?? new Map<string, string>()
      this.#kept.set(type, ofType)
      if (json === null) ofType.delete(id)
      else ofType.set(id, json)
      if (type === SEEN) forgetOldest(ofType, MOST_SEEN)
    }
  }

  *live(): Iterable<Change> {
    for (const [type, ofType] of this.#kept) {
      for (const [id, json] of ofType) yield [[type, id, json]]
    }
  }
}

function forgetOldest(map: Map<string, string>, most: number): void {
  const oldest = map.keys().next()
  if (map.size > most && !oldest.done) map.delete(oldest.value)
}

const CODEC: LineCodec<Change> = {
  encode(change) {
    const entries = change.map(
      ([type, id, json]) => `[${JSON.stringify(type)},${JSON.stringify(id)},${json ?? 'null'}]`,
    )
    return `[${entries.join(',')}]`
  },
  decode(line) {
    const value: unknown = JSON.parse(line)
    if (!Array.isArray(value)) throw new TypeError('not a list of keys')
    return value.map(entryOf)
  },
}

function entryOf(value: unknown): Entry {
  if (!Array.isArray(value)) throw new TypeError('not a key')
  const [type, id, kept] = value as readonly unknown[]
  if (typeof type !== 'string' || typeof id !== 'string') throw new TypeError('not a key')
  return [type, id, kept === null ? null : JSON.stringify(kept)]
}

function changeOf(data: SignalDataSet): Change {
  return Object.entries(data).flatMap(([type, values]) =>
    Object.entries(values).map(([id, value]): Entry => [type, id, jsonOf(value)]),
  )
}

function jsonOf(value: unknown): string | null {
  if (value === null || value === undefined) return null
  return JSON.stringify(value, packed)
}

function revived<T extends keyof SignalDataTypeMap>(type: T, json: string): SignalDataTypeMap[T] {
  const value: unknown = JSON.parse(json, BufferJSON.reviver)
  return mended(type, value) as SignalDataTypeMap[T]
}

function mended(type: keyof SignalDataTypeMap, value: unknown): unknown {
  if (type === 'app-state-sync-key' && typeof value === 'object' && value !== null) {
    return proto.Message.AppStateSyncKeyData.fromObject(value)
  }
  if (type === 'sender-key' && value instanceof Uint8Array) {
    // Baileys writes bytes into this text in a form that it does not read, and then cannot use the
    // keys of messages that were overtaken by later ones.
    const text = Buffer.from(value).toString()
    return Buffer.from(JSON.stringify(JSON.parse(text), packed))
  }
  return value
}

/** Baileys keeps each pair twice: the LID by the number, the number by the LID with a suffix. */
function pairsIn(change: Change): readonly (readonly [string, string])[] {
  return change.flatMap(([type, id, json]) => {
    if (type !== 'lid-mapping' || json === null || id.endsWith('_reverse')) return []
    return [[String(JSON.parse(json)), id]] as const
  })
}
