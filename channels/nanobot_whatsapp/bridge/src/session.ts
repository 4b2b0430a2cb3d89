/**
 * WhatsApp's side of the helper: one account, connected whenever that is possible.
 *
 *     open the account -> connect -> (messages, requests) -> ended -> wait -> connect …
 *
 * What always holds: there is one connection at a time, and the next one begins when nothing of the
 * last one goes on; each change is reported as a state; only what a person must mend ends the
 * attempts.
 */

import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { DEFAULT_CONNECTION_CONFIG, fetchLatestWaWebVersion, type WAVersion } from 'baileys'
import { Auth } from './auth.js'
import { Connection, Groups } from './connection.js'
import { privateFolder } from './disk.js'
import { RequestFailed, wordsOf } from './errors.js'
import type { Outlet, Session } from './link.js'
import { isGroup, otherId } from './jids.js'
import { Downloads } from './media.js'
import type { Me, ReplyData, Request, State, Welcome } from './protocol.js'
import { Receiver } from './receive.js'
import type { Clock, Log } from './runtime.js'
import { SentStore } from './send.js'
import type { Spool } from './spool.js'

const SOON = 5

export interface SessionParts {
  /** Where auth, the sent store and downloads lie. */
  readonly folder: string
  readonly spool: Spool
  readonly outlet: Outlet
  readonly log: Log
  readonly clock: Clock
}

/** When to try again: seconds, or null for never. */
type Wait = number | null

export class WhatsAppSession implements Session {
  readonly #backoff = new Backoff(Math.random)
  readonly #versions: Versions
  #welcome: Welcome | null = null
  #account: Account | null = null
  #connection: Connection | null = null
  #running: Promise<void> = Promise.resolve()
  #stopping = false
  #wake: () => void = () => undefined

  constructor(private readonly parts: SessionParts) {
    this.#versions = new Versions(parts.log)
  }

  start(welcome: Welcome): void {
    this.#welcome = welcome
    this.#running = this.#run(welcome)
  }

  async stop(): Promise<void> {
    this.#stopping = true
    this.#wake()
    this.#connection?.close()
    await this.#running
    if (this.#account !== null) await closeAccount(this.#account)
  }

  async request(request: Request): Promise<ReplyData> {
    try {
      return await this.#answer(request)
    } catch (error) {
      if (error instanceof RequestFailed) throw error
      throw new RequestFailed('later', wordsOf(error), SOON)
    }
  }

  async #run(welcome: Welcome): Promise<void> {
    while (!this.#stopping) {
      const wait = await this.#attempt(welcome)
      if (wait === null) return
      await this.#pause(wait)
    }
  }

  async #attempt(welcome: Welcome): Promise<Wait> {
    try {
      const account = await this.#opened()
      if (!account.auth.paired && welcome.pair === 'none') {
        this.#report('need_pairing', 'no account is linked')
        return null
      }
      const { closing, held } = await this.#connect(account, welcome)
      if (this.#stopping) return null
      return await this.#after(closing, held, account, welcome)
    } catch (error) {
      // The disk refuses, or something that nobody foresaw: neither is a reason never to try again.
      return this.#later(wordsOf(error), 0)
    }
  }

  async #opened(): Promise<Account> {
    if (this.#account !== null) return this.#account
    const account = await openAccount(this.parts)
    account.auth.keys.onLearned((lid, number) => {
      const pair = [`${lid}@lid`, `${number}@s.whatsapp.net`] as const
      if (otherId(...pair, account.auth.own) !== '') this.parts.outlet.identity(...pair)
    })
    this.#account = account
    return account
  }

  /** One connection; `held` is how many milliseconds it was open. */
  async #connect(account: Account, welcome: Welcome): Promise<{ closing: Closing; held: number }> {
    const { clock, log } = this.parts
    const open = { since: 0 }
    this.#report('connecting')
    account.auth.beginAnew()
    const connection = new Connection(
      { ...account, clock, log, version: this.#versions.current, online: welcome.online },
      {
        opened: () => {
          open.since = clock.now()
          this.#report('open')
        },
        qr: (data) => {
          this.#pair(connection, welcome, data)
        },
      },
    )
    this.#connection = connection
    const closing = await connection.ended
    this.#connection = null
    return { closing, held: open.since === 0 ? 0 : clock.now() - open.since }
  }

  /** What follows from the end of a connection. */
  async #after(closing: Closing, held: number, account: Account, welcome: Welcome): Promise<Wait> {
    const verdict = verdictOn(closing)
    switch (verdict.next) {
      case 'at_once':
        return 0
      case 'newer_version':
        return (await this.#versions.refresh()) ? 0 : this.#later(closing.words, held)
      case 'replaced':
        this.#report('replaced', 'another program uses this link', verdict.wait)
        return verdict.wait
      case 'banned':
        this.#report('banned', `WhatsApp has shut the account out: ${closing.words}`, verdict.wait)
        return verdict.wait
      case 'logged_out':
        await this.#forget(account)
        this.#report('logged_out', 'the phone has unlinked nanobot')
        return welcome.pair === 'none' ? null : 0
      case 'backoff':
        return this.#later(closing.words, held)
    }
  }

  #later(words: string, held: number): Wait {
    const wait = this.#backoff.next(held)
    this.#report('backoff', words, wait)
    return wait
  }

  /** The account is not linked any more: what made us its device is worth nothing. */
  async #forget(account: Account): Promise<void> {
    this.#account = null
    await account.sent.close()
    await account.auth.retire('logged-out')
  }

  /** WhatsApp is ready to link an account. */
  #pair(connection: Connection, welcome: Welcome, data: string): void {
    this.#report('need_pairing', 'waiting to be linked')
    if (welcome.pair === 'qr') this.parts.outlet.qr(data)
    if (welcome.pair !== 'code' || connection.codeAsked) return
    connection.pairCode(welcome.number).then(
      (code) => {
        this.parts.outlet.pairCode(`${code.slice(0, 4)}-${code.slice(4)}`)
      },
      (error: unknown) => {
        this.parts.log.warning(`WhatsApp gave no code to link with: ${wordsOf(error)}`)
      },
    )
  }

  async #answer(request: Request): Promise<ReplyData> {
    switch (request.method) {
      case 'send':
        return this.#connected().sender.send(request.params)
      case 'download': {
        const { ref, limit } = request.params
        return { ...(await (await this.#opened()).downloads.fetch(ref, limit)) }
      }
      case 'typing':
        return this.#show(async ({ sock }) => {
          const { to, on } = request.params
          await sock.sendPresenceUpdate(on ? 'composing' : 'paused', to)
        })
      case 'read':
        if (this.#welcome?.read_receipts !== true) return {}
        return this.#show(async ({ sock }) => {
          const { chat, id, sender } = request.params
          const participant = isGroup(chat) ? { participant: sender } : {}
          await sock.readMessages([{ remoteJid: chat, id, fromMe: false, ...participant }])
        })
    }
  }

  #connected(): Connection {
    const connection = this.#connection
    if (connection?.isOpen) return connection
    throw new RequestFailed('later', 'WhatsApp is not connected', SOON)
  }

  /** Do something that is only nice to have. */
  async #show(work: (connection: Connection) => Promise<void>): Promise<ReplyData> {
    try {
      await work(this.#connected())
    } catch (error) {
      this.parts.log.debug(`not shown: ${wordsOf(error)}`)
    }
    return {}
  }

  #report(state: State, detail = '', wait: Wait = null): void {
    this.parts.outlet.state({ state, detail, retry_in: wait, me: this.#me() })
  }

  #me(): Me | null {
    const auth = this.#account?.auth
    if (auth?.paired !== true) return null
    return { ...auth.own, name: auth.creds.me?.name ?? '' }
  }

  async #pause(seconds: number): Promise<void> {
    if (this.#stopping || seconds <= 0) return
    await new Promise<void>((resolve) => {
      const cancel = this.parts.clock.after(seconds * 1000, resolve)
      this.#wake = () => {
        cancel()
        resolve()
      }
    })
  }
}

/*
 * What follows from the end of a connection, and how long to wait; values in, values out.
 *
 * WhatsApp gives a number with most ends. Some are final (unlinked, banned), some are wishes
 * (restart, newer version, somebody else uses the link), and everything else passes: try again,
 * ever more slowly.
 */

/** How a connection ended. */
export interface Closing {
  /** WhatsApp's number for it; 0 if it was not WhatsApp that ended the connection. */
  readonly code: number
  /** In words, for people. */
  readonly words: string
  /** Seconds that WhatsApp wants us to stay away, 0 if it does not say. */
  readonly expire: number
  /** Our disk refused to keep something. */
  readonly disk: boolean
}

export type Verdict =
  /** The phone has unlinked us, or WhatsApp has. */
  | { readonly next: 'logged_out' }
  /** Try again at once. */
  | { readonly next: 'at_once' }
  /** Find out which version WhatsApp wants, then try again. */
  | { readonly next: 'newer_version' }
  /** Another program uses the link: try again after so many seconds. */
  | { readonly next: 'replaced'; readonly wait: number }
  /** Only a person can mend it, or time if `wait` seconds are given. */
  | { readonly next: 'banned'; readonly wait: number | null }
  | { readonly next: 'backoff' }

const REPLACED_WAIT = 300

/** What WhatsApp's numbers mean. */
const MEANING: ReadonlyMap<number, Verdict['next']> = new Map<number, Verdict['next']>([
  [401, 'logged_out'],
  [402, 'banned'],
  [403, 'banned'],
  [405, 'newer_version'],
  [406, 'banned'],
  [440, 'replaced'],
  [515, 'at_once'],
])

export function verdictOn(closing: Closing): Verdict {
  const next = closing.disk ? 'backoff' : (MEANING.get(closing.code) ?? 'backoff')
  if (next === 'replaced') return { next, wait: REPLACED_WAIT }
  if (next === 'banned') return { next, wait: closing.expire > 0 ? closing.expire : null }
  return { next }
}

const FIRST = 1
const LONGEST = 300
/** A connection that held this long (ms) was a good one: the waiting starts over after it. */
const GOOD = 60_000

/** How long to wait before the next attempt: 1 s to 5 min, twice as long each time, with jitter. */
export class Backoff {
  #failures = 0

  /** `random` gives numbers from 0 up to 1. */
  constructor(private readonly random: () => number) {}

  /** Seconds to wait, after a connection that was open for `open` milliseconds. */
  next(open: number): number {
    if (open >= GOOD) this.#failures = 0
    const most = Math.min(LONGEST, FIRST * 2 ** this.#failures)
    this.#failures = Math.min(this.#failures + 1, 16)
    return most * (0.5 + this.random() / 2)
  }
}

/* Which version of WhatsApp Web we say we are: Baileys' own, until WhatsApp wants a newer one. */

const PATIENCE = 10_000

export class Versions {
  #current: WAVersion = DEFAULT_CONNECTION_CONFIG.version

  constructor(private readonly log: Log) {}

  get current(): WAVersion {
    return this.#current
  }

  /** Ask WhatsApp for its version; whether it is another one than the current one. */
  async refresh(): Promise<boolean> {
    const found = await fetchLatestWaWebVersion({ signal: AbortSignal.timeout(PATIENCE) })
    if (!found.isLatest || String(found.version) === String(this.#current)) {
      this.log.warning('WhatsApp wants a newer version, and none could be found')
      return false
    }
    this.#current = found.version
    this.log.info(`going on as WhatsApp Web ${found.version.join('.')}`)
    return true
  }
}

/* What the helper keeps of one WhatsApp account, in its folder. */

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
