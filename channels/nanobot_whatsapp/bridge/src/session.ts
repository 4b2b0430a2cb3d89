/**
 * WhatsApp's side of the helper: one account, connected whenever that is possible.
 *
 *     open the account -> connect -> (messages, requests) -> ended -> wait -> connect …
 *
 * Invariant: there is one connection at a time, and the next one begins when nothing of the last
 * one goes on; each change is reported as a state; only what a person must fix ends the attempts.
 */

import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { DEFAULT_CONNECTION_CONFIG, fetchLatestWaWebVersion, type WAVersion } from 'baileys'
import { Auth } from './auth.js'
import { Connection, Groups } from './connection.js'
import { privateFolder } from './disk.js'
import { type Closing, RequestFailed, wordsOf } from './errors.js'
import type { Link, Session } from './link.js'
import { isGroup, otherId } from './jids.js'
import { download } from './media.js'
import type { ReplyData, Request, State, Welcome } from './protocol.js'
import { Receiver } from './receive.js'
import type { Clock, Log } from './runtime.js'
import { SentStore } from './send.js'
import type { Spool } from './spool.js'

const DOWNLOADS = 'downloads'
const SOON = 5
const REPLACED_WAIT = 300
const VERSION_WITHIN = 10_000
const LONGEST_DETAIL = 1000

export interface SessionParts {
  /** Where auth, the sent store and downloads lie. */
  readonly folder: string
  readonly spool: Spool
  readonly link: Link
  /** How the daemon wants it. */
  readonly welcome: Welcome
  readonly log: Log
  readonly clock: Clock
}

/** What the helper keeps of one WhatsApp account. */
interface Account {
  readonly auth: Auth
  readonly sent: SentStore
  readonly groups: Groups
  readonly receiver: Receiver
}

/** When to try again: seconds, or null for never. */
type Wait = number | null

export class WhatsAppSession implements Session {
  readonly #backoff = new Backoff(Math.random)
  /** Which WhatsApp Web we say we are: Baileys' own, until WhatsApp wants a newer one. */
  #version: WAVersion = DEFAULT_CONNECTION_CONFIG.version
  #account: Account | null = null
  #connection: Connection | null = null

  constructor(private readonly parts: SessionParts) {
    const { folder } = parts
    for (const name of [DOWNLOADS, 'tmp']) {
      rmSync(join(folder, name), { recursive: true, force: true })
      privateFolder(join(folder, name))
    }
    // Baileys puts what it uploads into files there: out of the sight of others, and removed here.
    process.env['TMPDIR'] = join(folder, 'tmp')
    void this.#run()
  }

  async request(request: Request): Promise<ReplyData> {
    try {
      return await this.#answer(request)
    } catch (error) {
      if (error instanceof RequestFailed) throw error
      throw new RequestFailed('later', wordsOf(error), SOON)
    }
  }

  async #run(): Promise<void> {
    for (;;) {
      const wait = await this.#attempt()
      if (wait === null) return
      await new Promise<void>((resolve) => {
        this.parts.clock.after(wait * 1000, resolve)
      })
    }
  }

  async #attempt(): Promise<Wait> {
    try {
      this.#account ??= this.#open()
      if (!this.#account.auth.paired && this.parts.welcome.pair === 'none') {
        this.#report('need_pairing', 'no account is linked')
        return null
      }
      const { closing, held } = await this.#connect(this.#account)
      return await this.#after(closing, held)
    } catch (error) {
      // The disk refuses, or an unexpected error: neither is a reason to stop trying.
      return this.#later(wordsOf(error), 0)
    }
  }

  /** Open the account, made if need be; throws if the disk refuses. */
  #open(): Account {
    const { folder, spool, clock, log, link } = this.parts
    const auth = new Auth(join(folder, 'auth'), clock, log)
    auth.keys.onLearned = (user, phone) => {
      const [lid, number] = [`${user}@lid`, `${phone}@s.whatsapp.net`]
      if (otherId(lid, number, auth.own) !== '') link.report({ type: 'identity', lid, number })
    }
    const sent = new SentStore(join(folder, 'sent.jsonl'), clock, log)
    const groups = new Groups(clock)
    return { auth, sent, groups, receiver: new Receiver(spool, { auth, sent, groups }, log) }
  }

  /** One connection; `held` is how many milliseconds it was open. */
  async #connect(account: Account): Promise<{ closing: Closing; held: number }> {
    const { clock, log, welcome } = this.parts
    const open = { since: 0, isCodeAsked: false }
    this.#report('connecting')
    account.auth.beginAnew()
    const connection = new Connection({
      ...account,
      clock,
      log,
      version: this.#version,
      online: welcome.online,
      opened: () => {
        open.since = clock.now()
        this.#report('open')
      },
      qr: (data) => {
        this.#report('need_pairing', 'waiting to be linked')
        if (welcome.pair === 'qr') this.parts.link.report({ type: 'qr', data })
        if (welcome.pair !== 'code' || open.isCodeAsked) return
        open.isCodeAsked = true
        void this.#pairByCode(connection, welcome.number)
      },
    })
    this.#connection = connection
    const closing = await connection.ended
    this.#connection = null
    return { closing, held: open.since === 0 ? 0 : clock.now() - open.since }
  }

  /** Ask for a code to link the number (digits) with. */
  async #pairByCode({ sock }: Connection, number: string): Promise<void> {
    try {
      const code = await sock.requestPairingCode(number)
      this.parts.link.report({ type: 'pair_code', code: `${code.slice(0, 4)}-${code.slice(4)}` })
    } catch (error) {
      this.parts.log('warning', `WhatsApp sent no linking code: ${wordsOf(error)}`)
    }
  }

  /** What follows from the end of a connection. */
  async #after(closing: Closing, held: number): Promise<Wait> {
    const { next, wait } = verdictOn(closing)
    switch (next) {
      case 'at_once':
        return 0
      case 'newer_version':
        return (await this.#findVersion()) ? 0 : this.#later(closing.words, held)
      case 'replaced':
        this.#report('replaced', 'another program is using this linked device', wait)
        return wait
      case 'banned':
        this.#report('banned', `WhatsApp has locked the account out: ${closing.words}`, wait)
        return wait
      case 'logged_out':
        this.#forget()
        this.#report('logged_out', 'the phone has unlinked nanobot')
        return this.parts.welcome.pair === 'none' ? null : 0
      case 'backoff':
        return this.#later(closing.words, held)
    }
  }

  #later(words: string, held: number): Wait {
    const wait = this.#backoff.next(held)
    this.#report('backoff', words, wait)
    return wait
  }

  /** Ask WhatsApp for its version; whether it is another one than ours. */
  async #findVersion(): Promise<boolean> {
    const found = await fetchLatestWaWebVersion({ signal: AbortSignal.timeout(VERSION_WITHIN) })
    if (!found.isLatest || String(found.version) === String(this.#version)) {
      this.parts.log('warning', 'WhatsApp requires a newer version, but none was found')
      return false
    }
    this.#version = found.version
    this.parts.log('info', `continuing as WhatsApp Web ${found.version.join('.')}`)
    return true
  }

  /** The account is not linked any more: its credentials and keys are useless. */
  #forget(): void {
    const account = this.#account
    this.#account = null
    account?.sent.close()
    account?.auth.retire('logged-out')
  }

  async #answer(request: Request): Promise<ReplyData> {
    switch (request.method) {
      case 'send':
        return this.#connected().sender.send(request.params)
      case 'download': {
        const { ref, limit } = request.params
        return { ...(await download(this.parts.folder, DOWNLOADS, ref, limit)) }
      }
      case 'typing':
        return this.#show(async ({ sock }) => {
          const { to, on } = request.params
          await sock.sendPresenceUpdate(on ? 'composing' : 'paused', to)
        })
      case 'read':
        if (!this.parts.welcome.read_receipts) return {}
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

  /** Best effort. */
  async #show(work: (connection: Connection) => Promise<void>): Promise<ReplyData> {
    try {
      await work(this.#connected())
    } catch (error) {
      this.parts.log('debug', `not shown: ${wordsOf(error)}`)
    }
    return {}
  }

  #report(state: State, detail = '', wait: Wait = null): void {
    const auth = this.#account?.auth
    const me = auth?.paired === true ? { ...auth.own, name: auth.creds.me?.name ?? '' } : null
    const words = detail.slice(0, LONGEST_DETAIL)
    this.parts.link.report({ type: 'state', state, detail: words, retry_in: wait, me })
  }
}

/** What to do after the end of a connection. */
export interface Verdict {
  readonly next:
    Exclude<State, 'need_pairing' | 'connecting' | 'open'> | 'at_once' | 'newer_version'
  /** Seconds until the next attempt, where that is known; null: none, or as `next` says. */
  readonly wait: Wait
}

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

/**
 * WhatsApp gives a number with most ends. Some are final (unlinked, banned), some are wishes
 * (restart, newer version, another program uses the link), and everything else passes: try again,
 * ever more slowly.
 */
export function verdictOn({ code, expire, disk }: Closing): Verdict {
  const next = disk ? 'backoff' : (MEANING.get(code) ?? 'backoff')
  if (next === 'replaced') return { next, wait: REPLACED_WAIT }
  return { next, wait: next === 'banned' && expire > 0 ? expire : null }
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
