/**
 * The credentials of the linked device: `creds.json`, and the one before as `creds.json.old`.
 *
 * What always holds: when `saveCreds` has returned, the credentials are on disk. It does not yield,
 * because Baileys tells WhatsApp of a new pairing or new keys right after it told us.
 */

import { randomBytes } from 'node:crypto'
import * as fs from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { BufferJSON, type AuthenticationCreds } from 'baileys'
import { isMissing, setAside } from './atomic.js'
import type { Clock } from './clock.js'
import type { Log } from './log.js'

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
