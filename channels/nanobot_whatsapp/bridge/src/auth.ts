/**
 * What makes us the device that was linked: a folder with credentials and keys.
 *
 * Invariant: credentials are stored only once the device is linked; whatever the folder holds, it
 * can be opened, if need be as a new device that has to be linked.
 */

import { join } from 'node:path'
import {
  type AuthenticationCreds,
  type AuthenticationState,
  BufferJSON,
  initAuthCreds,
  proto,
  type SignalDataSet,
  type SignalDataTypeMap,
  type SignalKeyStore,
} from 'baileys'
import { AppendLog, contentOf, type LogState, privateFolder, setAside, writeWhole } from './disk.js'
import { bare, isLid, otherId, type Own, userOf } from './jids.js'
import type { Jid } from './protocol.js'
import { type Clock, keepNewest, type Log } from './runtime.js'

export class Auth implements AuthenticationState {
  readonly creds: AuthenticationCreds
  readonly keys: Keys
  /** `creds.json`; what it was before the last change is `creds.json.old`. */
  readonly #path: string

  /** Open the folder, created if missing. What is damaged is set aside with a warning. */
  constructor(
    private readonly folder: string,
    private readonly clock: Clock,
    log: Log,
  ) {
    privateFolder(folder)
    this.#path = join(folder, 'creds.json')
    this.keys = new Keys(join(folder, 'keys.jsonl'), clock, log)
    this.creds = this.#load(log)
  }

  /** Whether an account is linked. */
  get paired(): boolean {
    return this.creds.me !== undefined && this.creds.account !== undefined
  }

  /** Our own two ids, '' where one is not known. */
  get own(): Own {
    const { id, lid } = this.creds.me ?? {}
    return { number: bare(id), lid: bare(lid) }
  }

  /** The other id of a person (LID or number), '' if it is not known. */
  otherOf(person: Jid): Jid {
    const user = userOf(person)
    const key = isLid(person) ? `${user}_reverse` : user
    const other = this.keys.get('lid-mapping', [key])[key]
    if (other === undefined) return ''
    return otherId(person, `${other}@${isLid(person) ? 's.whatsapp.net' : 'lid'}`, this.own)
  }

  /** Bring the credentials to disk, once there is a link to keep; throws if the disk refuses. */
  save(): void {
    if (!this.paired) return
    const before = contentOf(this.#path)
    if (before !== null) writeWhole(`${this.#path}.old`, before)
    writeWhole(this.#path, JSON.stringify(this.creds, packed))
  }

  /** Drop what an unfinished pairing left behind. */
  beginAnew(): void {
    if (this.paired) return
    delete this.creds.me
    Object.assign(this.creds, initAuthCreds())
  }

  /** Close the files and set the whole folder aside; returns its new path. */
  retire(why: string): string {
    this.keys.close()
    return setAside(this.folder, why, this.clock)
  }

  /** The credentials; broken ones are set aside, and those before them taken if they work. */
  #load(log: Log): AuthenticationCreds {
    const content = contentOf(this.#path)
    const current = content && credsIn(content)
    if (current !== null) return current
    if (content !== null) {
      const aside = setAside(this.#path, 'corrupt', this.clock)
      log('warning', `the credentials are damaged and were moved to ${aside}`)
    }
    const old = contentOf(`${this.#path}.old`)
    const previous = old && credsIn(old)
    if (previous === null) return initAuthCreds()
    log('warning', 'using the previous credentials')
    // A pre-key that WhatsApp has from us must never be replaced under the same id.
    const next = Math.max(previous.nextPreKeyId, this.keys.lastPreKey() + 1)
    if (next > previous.nextPreKeyId) previous.firstUnuploadedPreKeyId = next
    previous.nextPreKeyId = next
    return previous
  }
}

/** Null if damaged; as only we write it, a few fields are enough to see that. */
function credsIn(content: Buffer): AuthenticationCreds | null {
  try {
    const creds = JSON.parse(content.toString(), BufferJSON.reviver) as AuthenticationCreds
    const { me, account, noiseKey, signedIdentityKey, signedPreKey } = creds
    const pairs = [noiseKey, signedIdentityKey, signedPreKey.keyPair]
    const keys = pairs.flatMap((pair) => [pair.private, pair.public])
    const numbers = [creds.registrationId, creds.nextPreKeyId]
    const isWhole =
      typeof me?.id === 'string' &&
      Boolean(account) &&
      numbers.every((each) => typeof each === 'number') &&
      keys.every((key) => key instanceof Uint8Array && key.length === 32)
    return isWhole ? creds : null
  } catch {
    return null
  }
}

/** A replacer for JSON that keeps bytes. */
function packed(key: string, value: unknown): unknown {
  return BufferJSON.replacer(key, value) as unknown
}

/** The type under which the names of decrypted messages are kept: their keys are used up. */
const SEEN = 'nanobot-seen'
const MOST_SEEN = 1000
const NONE = 'null'

/** One key: its type, its id, and the value as JSON; `null` removes it. */
type Entry = readonly [type: string, id: string, json: string]
type Change = readonly Entry[]

/**
 * The keys of the Signal protocol, kept in `keys.jsonl`: one line is what was set together.
 *
 * Invariant: when `set` has returned, all of it is on disk, and none of it when it has thrown;
 * `get` gives copies, the same as after a restart.
 */
export class Keys implements SignalKeyStore, LogState<Change> {
  readonly #kept = new Map<string, Map<string, string>>()
  readonly #log: AppendLog<Change>
  /** Called with each LID and the number of the same person, without their servers. */
  onLearned: (lid: string, number: string) => void = () => undefined
  /** Called when the disk refuses, before `set` throws. */
  onFailure: (error: unknown) => void = () => undefined

  constructor(path: string, clock: Clock, log: Log) {
    this.#log = new AppendLog(path, this, clock, log)
  }

  get<T extends keyof SignalDataTypeMap>(
    type: T,
    ids: readonly string[],
  ): Record<string, SignalDataTypeMap[T]> {
    const found: Record<string, SignalDataTypeMap[T]> = {}
    for (const id of ids) {
      const json = this.#kept.get(type)?.get(id)
      if (json !== undefined) found[id] = revived(type, json) as SignalDataTypeMap[T]
    }
    return found
  }

  set(data: SignalDataSet): void {
    const change = Object.entries(data).flatMap(([type, values]) =>
      Object.entries(values).map(([id, value]: [string, unknown]): Entry => {
        return [type, id, JSON.stringify(value ?? null, packed)]
      }),
    )
    if (change.length === 0) return
    try {
      this.#log.append(change)
    } catch (error) {
      this.onFailure(error)
      throw error
    }
    for (const [type, id, json] of change) {
      // Baileys keeps each pair twice: also the number by the LID with a suffix.
      if (type !== 'lid-mapping' || json === NONE || id.endsWith('_reverse')) continue
      this.onLearned(String(JSON.parse(json)), id)
    }
  }

  /** Whether a message was decrypted (see `seenChange`), as far as that is remembered. */
  seen(name: string): boolean {
    return this.#kept.get(SEEN)?.has(name) === true
  }

  /** The highest id of a pre-key that is kept; 0 if there is none. */
  lastPreKey(): number {
    return Math.max(0, ...[...(this.#kept.get('pre-key')?.keys() ?? [])].map(Number))
  }

  close(): void {
    this.#log.close()
  }

  apply(change: Change): void {
    for (const [type, id, json] of change) {
      const ofType = this.#kept.get(type) ?? new Map<string, string>()
      this.#kept.set(type, ofType)
      if (json === NONE) ofType.delete(id)
      else ofType.set(id, json)
      if (type === SEEN) keepNewest(ofType, MOST_SEEN)
    }
  }

  *live(): Iterable<Change> {
    for (const [type, ofType] of this.#kept) {
      for (const [id, json] of ofType) yield [[type, id, json]]
    }
  }

  encode(change: Change): string {
    const entries = change.map(
      ([type, id, json]) => `[${JSON.stringify(type)},${JSON.stringify(id)},${json}]`,
    )
    return `[${entries.join(',')}]`
  }

  decode(line: string): Change {
    const entries = JSON.parse(line) as readonly (readonly [unknown, unknown, unknown])[]
    return entries.map(([type, id, kept]) => {
      if (typeof type !== 'string' || typeof id !== 'string') throw new TypeError('not a key')
      return [type, id, JSON.stringify(kept)]
    })
  }
}

/** What to set together with the keys that a message has used. */
export function seenChange(name: string): SignalDataSet {
  const change: object = { [SEEN]: { [name]: 1 } }
  return change
}

function revived(type: keyof SignalDataTypeMap, json: string): unknown {
  const value: unknown = JSON.parse(json, BufferJSON.reviver)
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
