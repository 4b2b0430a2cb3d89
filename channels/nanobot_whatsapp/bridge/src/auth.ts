/**
 * What makes us the device that was linked: a folder with credentials and keys.
 *
 * What always holds: only a device that is linked leaves anything on disk; whatever lies there, a
 * device comes out of it, if need be a new one that has to be linked.
 */

import { join } from 'node:path'
import { initAuthCreds, type AuthenticationCreds, type AuthenticationState } from 'baileys'
import { privateFolder, setAside, sweep } from './atomic.js'
import type { Clock } from './clock.js'
import { loadCreds, saveCreds } from './creds.js'
import { bare, isLid, otherId, userOf, type Own } from './jids.js'
import { Keys } from './keys.js'
import type { Log } from './log.js'
import type { Jid } from './protocol.js'

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
