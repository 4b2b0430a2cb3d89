/**
 * The connection with the daemon: one for the life of the process.
 *
 *     connect -> hello -> welcome -> (events, requests, pings) -> ended
 *
 * Invariant: events are sent in order of their numbers, at most `WINDOW` unconfirmed, and none
 * before a state has said whose account this is; an event leaves the spool only after its
 * confirmation; each request gets one reply; what waits for a daemon that does not read is bounded.
 * The end of the connection is the end of the helper.
 */

import { connect, type Socket } from 'node:net'
import { RequestFailed } from './errors.js'
import {
  type FromDaemon,
  type Hello,
  Lines,
  type LogLevel,
  parseLine,
  PROTOCOL,
  ProtocolError,
  type ReplyData,
  type ReplyError,
  type Request,
  type ToDaemon,
  type Welcome,
  WINDOW,
} from './protocol.js'
import type { Clock } from './runtime.js'
import type { Spool } from './spool.js'

/** WhatsApp's side; it reports what happens to the link. */
export interface Session {
  /** Answer one request; rejects with `RequestFailed`. */
  request(request: Request): Promise<ReplyData>
}

/** What a session reports to the daemon. */
export type Report = Extract<ToDaemon, { type: 'state' | 'qr' | 'pair_code' | 'identity' }>

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
  /** Begin as the daemon wishes; called once. */
  begin(welcome: Welcome): Session
}

export class Link {
  readonly #ended: Promise<Ending>
  #end: (ending: Ending) => void = () => undefined
  #over = false
  #socket: Socket | null = null
  #session: Session | null = null
  #welcomed = false
  /** Whether a state has said whose account this is, or that no account is linked. */
  #identified = false
  #requests = 0
  /** The number of the last event on the wire, and those without a confirmation. */
  #sent = 0
  #unconfirmed: number[] = []

  constructor(private readonly parts: LinkParts) {
    this.#ended = new Promise((resolve) => {
      this.#end = resolve
    })
  }

  /** Connect and serve a session until the connection has ended; never rejects. */
  async run(): Promise<Ending> {
    const socket = connect({ path: this.parts.socket })
    this.#socket = socket
    const patience = this.parts.clock.after(WELCOME_WITHIN, () => {
      if (!this.#welcomed) this.end({ how: 'broken', reason: 'the daemon did not send welcome' })
    })
    this.#listen(socket)
    this.parts.spool.onPut = () => {
      this.#sendEvents()
    }
    const ending = await this.#ended
    patience()
    socket.destroy()
    return ending
  }

  /** End the connection. Only the first end counts. */
  end(ending: Ending): void {
    this.#over = true
    this.#end(ending)
  }

  /**
   * Pass on what a session reports. Messages do not come this way: they go into the spool, because
   * they have to be on disk before WhatsApp hears that we have them.
   */
  report(report: Report): void {
    this.#send(report)
    if (report.type !== 'state') return
    this.#identified ||= report.me !== null || ['need_pairing', 'logged_out'].includes(report.state)
    this.#sendEvents()
  }

  /** Whether the daemon is there for the log; if it is slow, the message is dropped. */
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
      this.#sendEvents()
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
        this.#receive(parseLine(line))
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      this.end({ how: 'garbage', reason: error.message })
    }
  }

  #receive(said: FromDaemon): void {
    switch (said.type) {
      case 'welcome':
        this.#begin(said)
        return
      case 'goodbye':
        this.end({ how: 'goodbye', reason: said.reason.slice(0, MOST_WORDS) })
        return
      case 'ack':
        // What was never sent cannot be confirmed.
        this.parts.spool.confirm(Math.min(said.seq, this.#sent))
        this.#unconfirmed = this.#unconfirmed.filter((each) => each > said.seq)
        this.#sendEvents()
        return
      case 'ping':
        this.#send({ type: 'pong', id: said.id })
        return
      case 'request':
        void this.#answer(said.id, said.request)
        return
      case 'bad_request':
        this.#refuse(said.id, { code: 'refused', message: said.reason })
        return
      case 'unknown':
        this.log('debug', `unknown message from the daemon: ${said.name}`)
    }
  }

  #begin(welcome: Welcome): void {
    if (this.#welcomed) throw new ProtocolError('a second welcome')
    if (welcome.protocol !== PROTOCOL) {
      throw new ProtocolError(`the daemon speaks protocol ${welcome.protocol}, not ${PROTOCOL}`)
    }
    this.#welcomed = true
    this.#session = this.parts.begin(welcome)
  }

  /** Send the events that wait, as far as the daemon confirms and reads them. */
  #sendEvents(): void {
    try {
      while (this.#identified && this.#unconfirmed.length < WINDOW) {
        const next = this.#unread > EVENTS_UP_TO ? null : this.parts.spool.after(this.#sent)
        if (next === null || this.#over) return
        this.#sent = next.seq
        this.#unconfirmed.push(next.seq)
        this.#send({ type: 'event', ...next })
      }
    } catch (error) {
      this.end({ how: 'broken', reason: `the spool cannot be read: ${String(error)}` })
    }
  }

  async #answer(id: number, request: Request): Promise<void> {
    if (this.#session === null || this.#requests >= MOST_REQUESTS) {
      this.#refuse(id, { code: 'later', message: 'too many requests at once', retry_after: 5 })
      return
    }
    this.#requests += 1
    try {
      const data = await this.#session.request(request)
      this.#send({ type: 'reply', id, ok: true, data })
    } catch (error) {
      this.#refuse(id, error instanceof RequestFailed ? error.reply : this.#fault(request, error))
    } finally {
      this.#requests -= 1
    }
  }

  /** Any other error is a fault of ours: said so, and the message's fate is open. */
  #fault(request: Request, error: unknown): ReplyError {
    const message = `${request.method} failed: ${String(error)}`
    this.log('error', message)
    return { code: request.method === 'send' ? 'unknown' : 'refused', message }
  }

  #refuse(id: number, error: ReplyError): void {
    const message = error.message.slice(0, MOST_WORDS)
    this.#send({ type: 'reply', id, ok: false, error: { ...error, message } })
  }

  #send(value: ToDaemon): void {
    const socket = this.#socket
    if (socket === null || this.#over) return
    socket.write(JSON.stringify(value) + '\n')
    if (this.#unread > UNREAD_UP_TO) {
      this.end({ how: 'broken', reason: 'the daemon is not reading' })
    }
  }
}
