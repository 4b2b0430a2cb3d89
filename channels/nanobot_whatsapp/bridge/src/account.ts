/** What the helper keeps of one WhatsApp account, in its folder. */

import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { privateFolder } from './atomic.js'
import { Auth } from './auth.js'
import type { Clock } from './clock.js'
import { Groups } from './groups.js'
import type { Log } from './log.js'
import { Downloads } from './media.js'
import { Receiver } from './receive.js'
import { SentStore } from './sent.js'
import type { Spool } from './spool.js'

const AUTH = 'auth'
const DOWNLOADS = 'downloads'
const TEMPORARY = 'tmp'

export interface Account {
  readonly auth: Auth
  readonly sent: SentStore
  readonly groups: Groups
  readonly receiver: Receiver
  readonly downloads: Downloads
}

export interface AccountParts {
  readonly folder: string
  readonly spool: Spool
  readonly clock: Clock
  readonly log: Log
}

/** Open the account, made if need be; rejects if the disk refuses. */
export async function openAccount({ folder, spool, clock, log }: AccountParts): Promise<Account> {
  for (const name of [DOWNLOADS, TEMPORARY]) await emptied(join(folder, name))
  // Baileys puts what it uploads into files there: out of the sight of others, and removed here.
  process.env['TMPDIR'] = join(folder, TEMPORARY)
  const auth = await Auth.open(join(folder, AUTH), clock, log)
  const sent = await SentStore.open(join(folder, 'sent.jsonl'), clock, log)
  const groups = new Groups(clock)
  const around = {
    own: () => auth.own,
    titleOf: (group: string) => groups.nameOf(group),
    otherOf: (person: string) => auth.otherOf(person),
    ours: (id: string) => sent.has(id),
    sentTo: (id: string, chat: string, alternative: string) =>
      sent.messageTo(id, chat, alternative),
    seen: (name: string) => auth.keys.seen(name),
  }
  const receiver = new Receiver(spool, around, log)
  return { auth, sent, groups, receiver, downloads: new Downloads(folder, DOWNLOADS, clock) }
}

export async function closeAccount({ auth, sent }: Account): Promise<void> {
  await Promise.all([auth.close(), sent.close()])
}

async function emptied(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true })
  await privateFolder(folder)
}
