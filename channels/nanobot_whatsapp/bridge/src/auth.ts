/**
 * What makes us the device that was linked: a folder with credentials and keys.
 *
 * What always holds: only a device that is linked leaves anything on disk; whatever lies there, a
 * device comes out of it, if need be a new one that has to be linked.
 */

import { randomBytes } from 'node:crypto'
import * as fs from 'node:fs'
import { basename, dirname, join } from 'node:path'
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
import {
  AppendLog,
  isMissing,
  type LineCodec,
  type LogState,
  privateFolder,
  setAside,
  sweep,
} from './disk.js'
import { bare, isLid, otherId, type Own, userOf } from './jids.js'
import type { Jid } from './protocol.js'
import type { Clock, Log } from './runtime.js'

export class Auth {
  private constructor(
    private readonly folder: string,
    private readonly clock: Clock,
    readonly creds: AuthenticationCreds,
    readonly keys: Keys,
  ) {}

  /** Open the folder, made if need be. What is broken is set aside with a warning. */
  static async open(folder: string, clock: Clock, log: Log): Promise<Auth> {
    await privateFolder(folder)
    await sweep(folder)
    const keys = await Keys.open(join(folder, 'keys.jsonl'), clock, log)
    const found = await loadCreds(credsIn(folder), clock, log)
    if (found?.old) log.warning('going on with the credentials before the last ones')
    const creds = found === null ? initAuthCreds() : found.creds
    // A pre-key that WhatsApp has from us must never be made anew under the same id.
    if (found?.old) skipPreKeys(creds, keys.lastPreKey())
    return new Auth(folder, clock, creds, keys)
  }

  /** Whether an account is linked. */
  get paired(): boolean {
    return isPaired(this.creds)
  }

  /** As Baileys wants it. */
  get state(): AuthenticationState {
    return { creds: this.creds, keys: this.keys }
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
    if (this.paired) saveCreds(credsIn(this.folder), this.creds)
  }

  /** Forget what a pairing that was not finished left behind. */
  beginAnew(): void {
    if (this.paired) return
    const fresh = initAuthCreds()
    delete this.creds.me
    Object.assign(this.creds, fresh)
  }

  /** Let go of the files. */
  close(): Promise<void> {
    return this.keys.close()
  }

  /** Let go of the files and give the whole folder another name; returns that name's path. */
  async retire(why: string): Promise<string> {
    await this.close()
    return setAside(this.folder, why, this.clock.now())
  }
}

function credsIn(folder: string): string {
  return join(folder, 'creds.json')
}

function isPaired({ me, account }: AuthenticationCreds): boolean {
  return me !== undefined && account !== undefined
}

function skipPreKeys(creds: AuthenticationCreds, last: number): void {
  if (last < creds.nextPreKeyId) return
  creds.nextPreKeyId = last + 1
  creds.firstUnuploadedPreKeyId = last + 1
}

/*
 * The credentials of the linked device: `creds.json`, and the one before as `creds.json.old`.
 *
 * What always holds: when `saveCreds` has returned, the credentials are on disk. It does not yield,
 * because Baileys tells WhatsApp of a new pairing or new keys right after it told us.
 */

/** Credentials that were found, and whether they are those before the last ones. */
export interface FoundCreds {
  readonly creds: AuthenticationCreds
  readonly old: boolean
}

/** Read the credentials; broken ones are set aside, and those before them taken if they work. */
export async function loadCreds(path: string, clock: Clock, log: Log): Promise<FoundCreds | null> {
  const current = read(path)
  if (current === 'broken') {
    const aside = await setAside(path, 'corrupt', clock.now())
    log.warning(`the credentials are damaged; they are kept in ${aside}`)
  } else if (current !== 'missing') {
    return { creds: current, old: false }
  }
  const previous = read(oldOf(path))
  return previous === 'broken' || previous === 'missing' ? null : { creds: previous, old: true }
}

/** Write the credentials; throws if the disk refuses, and then nothing has changed. */
export function saveCreds(path: string, creds: AuthenticationCreds): void {
  const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`)
  try {
    writeSynced(temporary, JSON.stringify(creds, packed))
    keepOld(path)
    fs.renameSync(temporary, path)
  } catch (error) {
    fs.rmSync(temporary, { force: true })
    throw error
  }
  syncFolder(dirname(path))
}

/** Bytes as JSON can hold them. */
export function packed(key: string, value: unknown): unknown {
  return BufferJSON.replacer(key, value) as unknown
}

function oldOf(path: string): string {
  return `${path}.old`
}

function read(path: string): AuthenticationCreds | 'broken' | 'missing' {
  try {
    const value: unknown = JSON.parse(fs.readFileSync(path, 'utf8'), BufferJSON.reviver)
    return isCreds(value) ? value : 'broken'
  } catch (error) {
    if (isMissing(error)) return 'missing'
    if (error instanceof SyntaxError) return 'broken'
    throw error
  }
}

/** Whether it is what we wrote once: damage is all that this has to find. */
function isCreds(value: unknown): value is AuthenticationCreds {
  if (!isRecord(value) || !isRecord(value['me']) || !isRecord(value['account'])) return false
  const { me, noiseKey, signedIdentityKey, signedPreKey, registrationId, nextPreKeyId } = value
  return (
    typeof me['id'] === 'string' &&
    typeof registrationId === 'number' &&
    typeof nextPreKeyId === 'number' &&
    isKeyPair(noiseKey) &&
    isKeyPair(signedIdentityKey) &&
    isRecord(signedPreKey) &&
    isKeyPair(signedPreKey['keyPair'])
  )
}

function isKeyPair(value: unknown): boolean {
  return isRecord(value) && isBytes(value['private']) && isBytes(value['public'])
}

function isBytes(value: unknown): boolean {
  return value instanceof Uint8Array && value.length === 32
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

function writeSynced(path: string, content: string): void {
  const file = fs.openSync(path, 'wx', 0o600)
  try {
    fs.writeFileSync(file, content)
    fs.fsyncSync(file)
  } finally {
    fs.closeSync(file)
  }
}

/** The current file gets a second name, so that there is no moment without it. */
function keepOld(path: string): void {
  const old = oldOf(path)
  const temporary = `${old}.tmp`
  fs.rmSync(temporary, { force: true })
  try {
    fs.linkSync(path, temporary)
  } catch (error) {
    if (isMissing(error)) return
    throw error
  }
  fs.renameSync(temporary, old)
}

function syncFolder(folder: string): void {
  const handle = fs.openSync(folder, 'r')
  try {
    fs.fsyncSync(handle)
  } finally {
    fs.closeSync(handle)
  }
}

/*
 * The keys of the Signal protocol, kept in `keys.jsonl`: one line is what was set together.
 *
 * What always holds: when `set` has resolved, all of it is on disk, and none of it when it has
 * rejected; `get` gives copies, the same as after a restart.
 */

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
