/**
 * The connection with the daemon: one for the life of the process.
 *
 *     connect -> hello -> welcome -> (events, requests, pings) -> ended
 *
 * What always holds: events are sent in order of their numbers, at most `WINDOW` unconfirmed, and
 * none before a state has said whose account this is; an event leaves the spool only after its
 * confirmation; each request gets one reply; what waits for a daemon that does not read is bounded.
 * The end of the connection is the end of the helper.
 */

import { connect, type Socket } from 'node:net'
import { RequestFailed } from './errors.js'
import {
  type FromDaemon,
  type Hello,
  type Jid,
  Lines,
  type LogLevel,
  parseLine,
  PROTOCOL,
  ProtocolError,
  type ReplyData,
  type ReplyError,
  type Request,
  type StateReport,
  type ToDaemon,
  type Welcome,
  WINDOW,
} from './protocol.js'
import type { Clock, Log } from './runtime.js'
import type { Spool } from './spool.js'

/** What the link asks of WhatsApp. */
export interface Session {
  /** Begin, as the daemon wishes; called once. Trouble is a state, not an error. */
  start(welcome: Welcome): void
  /** Answer one request; rejects with `RequestFailed`. */
  request(request: Request): Promise<ReplyData>
  /** Let go of WhatsApp and bring what is in hand to disk; called once, also after no start. */
  stop(): Promise<void>
}

/**
 * Where a session says what happens; none of these waits or fails. Messages do not come this way:
 * a session puts them into the spool, because a message has to be on disk before WhatsApp hears
 * that we have it.
 */
export interface Outlet {
  state(report: StateReport): void
  qr(data: string): void
  pairCode(code: string): void
  identity(lid: Jid, number: Jid): void
}

const WELCOME_WITHIN = 10_000
const MOST_REQUESTS = 64
const MOST_WORDS = 1000

/** Unread bytes beyond which log lines are dropped, events wait, and the connection is given up. */
const LOGS_UP_TO = 256 * 1024
const EVENTS_UP_TO = 1024 * 1024
const UNREAD_UP_TO = 16 * 1024 * 1024

/** How a connection ended. */
export interface Ending {
  /** `closed`: by the daemon. `garbage`: it spoke nonsense. `broken`: we cannot go on. */
  readonly how: 'closed' | 'goodbye' | 'garbage' | 'broken' | 'asked' | 'unreachable'
  readonly reason: string
}

export interface LinkParts {
  readonly socket: string
  readonly hello: Hello
  readonly spool: Spool
  readonly clock: Clock
  readonly log: Log
}

export class Link implements Outlet {
  readonly #wake = new Signal()
  readonly #ended: Promise<Ending>
  #end: (ending: Ending) => void = () => undefined
  #over = false
  #socket: Socket | null = null
  #session: Session | null = null
  #welcomed = false
  #stated = false
  #delivering = false
  #requests = 0
  /** The number of the last event on the wire, and those without a confirmation. */
  #sent = 0
  #unconfirmed: readonly number[] = []

  constructor(private readonly parts: LinkParts) {
    this.#ended = new Promise((resolve) => {
      this.#end = resolve
    })
  }

  /** Connect and serve `session` until the connection has ended; never rejects. */
  async run(session: Session): Promise<Ending> {
    this.#session = session
    const socket = connect({ path: this.parts.socket })
    this.#socket = socket
    const patience = this.parts.clock.after(WELCOME_WITHIN, () => {
      if (!this.#welcomed) this.end({ how: 'broken', reason: 'the daemon did not say welcome' })
    })
    this.#listen(socket)
    this.parts.spool.onPut(() => {
      this.#wake.notify()
    })
    const ending = await this.#ended
    patience()
    socket.destroy()
    return ending
  }

  /** End the connection. Only the first end counts. */
  end(ending: Ending): void {
    if (this.#over) return
    this.#over = true
    this.#wake.notify()
    this.#end(ending)
  }

  state(report: StateReport): void {
    this.#stated = true
    this.#send({ type: 'state', ...report, detail: report.detail.slice(0, MOST_WORDS) })
    if (!this.#delivering && this.#welcomed && saysWhose(report)) {
      this.#delivering = true
      void this.#deliver()
    }
  }

  qr(data: string): void {
    this.#send({ type: 'qr', data })
  }

  pairCode(code: string): void {
    this.#send({ type: 'pair_code', code })
  }

  identity(lid: Jid, number: Jid): void {
    this.#send({ type: 'identity', lid, number })
  }

  /** A sink of the log: takes a message while the daemon is there, and drops it if it is slow. */
  log(level: LogLevel, message: string): boolean {
    if (!this.#welcomed || this.#over) return false
    if (this.#unread <= LOGS_UP_TO) this.#send({ type: 'log', level, message })
    return true
  }

  get #unread(): number {
    return this.#socket?.writableLength ?? 0
  }

  #listen(socket: Socket): void {
    const lines = new Lines()
    let connected = false
    socket.on('connect', () => {
      connected = true
      this.#send({ type: 'hello', protocol: PROTOCOL, ...this.parts.hello })
    })
    socket.on('data', (chunk) => {
      this.#feed(lines, chunk)
    })
    socket.on('drain', () => {
      this.#wake.notify()
    })
    socket.on('error', (error) => {
      this.end({ how: connected ? 'closed' : 'unreachable', reason: error.message })
    })
    socket.on('close', () => {
      this.end({ how: 'closed', reason: 'the daemon closed the connection' })
    })
  }

  #feed(lines: Lines, chunk: Buffer): void {
    try {
      for (const line of lines.feed(chunk)) {
        if (this.#over) return
        this.#hear(parseLine(line))
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      this.end({ how: 'garbage', reason: error.message })
    }
  }

  #hear(said: FromDaemon): void {
    switch (said.type) {
      case 'welcome':
        this.#begin(said)
        return
      case 'goodbye':
        this.end({ how: 'goodbye', reason: said.reason.slice(0, MOST_WORDS) })
        return
      case 'ack':
        this.#confirm(said.seq)
        return
      case 'ping':
        this.#send({ type: 'pong', id: said.id })
        return
      case 'request':
        void this.#answer(said.id, said.request)
        return
      case 'bad_request':
        this.#refuse(said.id, { code: 'refused', message: said.reason.slice(0, MOST_WORDS) })
        return
      case 'unknown':
        this.parts.log.debug(`the daemon said something unknown: ${said.name}`)
    }
  }

  #begin(welcome: Welcome & { readonly protocol: number }): void {
    if (this.#welcomed) throw new ProtocolError('a second welcome')
    if (welcome.protocol !== PROTOCOL) {
      throw new ProtocolError(`the daemon speaks protocol ${welcome.protocol}, not ${PROTOCOL}`)
    }
    this.#welcomed = true
    this.#session?.start(welcome)
    if (!this.#stated) {
      this.state({ state: 'connecting', detail: '', retry_in: null, me: null })
    }
  }

  #confirm(seq: number): void {
    const upTo = Math.min(seq, this.#sent)
    if (upTo < seq) this.parts.log.warning(`the daemon confirmed ${seq}, which it never got`)
    this.#unconfirmed = this.#unconfirmed.filter((each) => each > upTo)
    void this.parts.spool.confirm(upTo)
    this.#wake.notify()
  }

  /** Send events as they come and as the daemon confirms them, until the end. */
  async #deliver(): Promise<void> {
    try {
      while (!this.#over) {
        if (!(await this.#sendNext())) await this.#wake.next()
      }
    } catch (error) {
      this.end({ how: 'broken', reason: `the spool cannot be read: ${String(error)}` })
    }
  }

  async #sendNext(): Promise<boolean> {
    if (this.#unconfirmed.length >= WINDOW || this.#unread > EVENTS_UP_TO) return false
    const next = await this.parts.spool.after(this.#sent)
    if (next === null) return false
    this.#sent = next.seq
    this.#unconfirmed = [...this.#unconfirmed, next.seq]
    this.#send({ type: 'event', ...next })
    return true
  }

  async #answer(id: number, request: Request): Promise<void> {
    if (this.#session === null || !this.#welcomed || this.#requests >= MOST_REQUESTS) {
      this.#refuse(id, { code: 'later', message: 'too much at once', retry_after: 5 })
      return
    }
    this.#requests += 1
    try {
      const data = await this.#session.request(request)
      this.#send({ type: 'reply', id, ok: true, data })
    } catch (error) {
      this.#refuse(id, this.#replyTo(request, error))
    } finally {
      this.#requests -= 1
    }
  }

  /** Any other error is a fault of ours: said so, and the message's fate is open. */
  #replyTo(request: Request, error: unknown): ReplyError {
    if (error instanceof RequestFailed) {
      return { ...error.reply, message: error.message.slice(0, MOST_WORDS) }
    }
    const message = `${request.method} failed: ${String(error)}`.slice(0, MOST_WORDS)
    this.parts.log.error(message)
    return { code: request.method === 'send' ? 'unknown' : 'refused', message }
  }

  #refuse(id: number, error: ReplyError): void {
    this.#send({ type: 'reply', id, ok: false, error })
  }

  #send(value: ToDaemon): void {
    const socket = this.#socket
    if (socket === null || this.#over) return
    socket.write(JSON.stringify(value) + '\n')
    if (this.#unread > UNREAD_UP_TO) {
      this.end({ how: 'broken', reason: 'the daemon does not read what is sent to it' })
    }
  }
}

/** Whether a state says who we are, or that no account is linked which could say it. */
function saysWhose({ me, state }: StateReport): boolean {
  return me !== null || state === 'need_pairing' || state === 'logged_out'
}

/* Something has happened: for one waiter, which then looks for itself. */

export class Signal {
  #happened = false
  #wake: (() => void) | null = null

  notify(): void {
    this.#happened = true
    this.#wake?.()
  }

  /** Resolves when `notify` is called, or at once if it was since the last wait ended. */
  async next(): Promise<void> {
    if (!this.#happened) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    this.#wake = null
    this.#happened = false
  }
}
