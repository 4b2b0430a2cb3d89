/**
 * WhatsApp's side of the helper: one account, connected whenever that is possible.
 *
 *     open the account -> connect -> (messages, requests) -> ended -> wait -> connect …
 *
 * What always holds: there is one connection at a time, and the next one begins when nothing of the
 * last one goes on; each change is reported as a state; only what a person must mend ends the
 * attempts.
 */

import { closeAccount, openAccount, type Account } from './account.js'
import { wordsOf } from './boom.js'
import type { Clock } from './clock.js'
import { Connection } from './connection.js'
import { isGroup, otherId } from './jids.js'
import type { Log } from './log.js'
import { Backoff, verdictOn, type Closing } from './policy.js'
import { RequestFailed, type Outlet, type Session } from './port.js'
import type { Me, ReplyData, Request, State, Welcome } from './protocol.js'
import type { Spool } from './spool.js'
import { Versions } from './versions.js'

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
