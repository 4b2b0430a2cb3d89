/** The daemon's end of the socket, for tests: it says what a test says and keeps what it hears. */

import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import type { TestContext } from 'node:test'

export type Line = Readonly<Record<string, unknown>>

export const WELCOME = {
  type: 'welcome',
  protocol: 1,
  pair: 'none',
  number: '',
  read_receipts: true,
  online: false,
} as const

/** Higher than any id that tests use for something else. */
const ECHO = 1_000_000

/** Something has happened: for one waiter, which then looks for itself. */
class Signal {
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

export class Daemon {
  /** Resolves when the helper has closed the connection. */
  readonly closed: Promise<void>
  readonly #heard: Line[] = []
  readonly #more = new Signal()
  readonly #counts = new Map<string, number>()
  #socket: Socket | null = null
  #gone: () => void = () => undefined
  #over = false
  #echoes = ECHO

  private constructor(private readonly server: Server) {
    this.closed = new Promise((resolve) => {
      this.#gone = resolve
    })
    server.once('connection', (socket) => {
      this.#accept(socket)
    })
  }

  /** Listen on a path until the test is over; one helper may connect. */
  static async listen(test: TestContext, path: string): Promise<Daemon> {
    const server = createServer()
    const daemon = new Daemon(server)
    server.listen(path)
    await once(server, 'listening')
    test.after(() => {
      daemon.close()
      server.close()
    })
    return daemon
  }

  say(value: object): void {
    this.write(JSON.stringify(value) + '\n')
  }

  write(text: string): void {
    this.#socket?.write(text)
  }

  /** The next line, or the next of a type, passing over others; rejects when none can come. */
  async next(type?: string): Promise<Line> {
    for (;;) {
      for (let line = this.#heard.shift(); line !== undefined; line = this.#heard.shift()) {
        if (type === undefined || line['type'] === type) return line
      }
      if (this.#over) throw new Error(`the helper left before it said ${type ?? 'anything'}`)
      await this.#more.next()
    }
  }

  /** Wait until the helper has heard all that was said; gives the lines that came before that. */
  async echo(): Promise<number> {
    this.#echoes += 1
    this.say({ type: 'ping', id: this.#echoes })
    for (let before = 0; ; before++) {
      if ((await this.next())['id'] === this.#echoes) return before
    }
  }

  /** How many lines of a type came so far. */
  seen(type: string): number {
    return this.#counts.get(type) ?? 0
  }

  pause(): void {
    this.#socket?.pause()
  }

  resume(): void {
    this.#socket?.resume()
  }

  close(): void {
    this.#socket?.destroy()
    this.server.close()
  }

  #accept(socket: Socket): void {
    this.#socket = socket
    socket.on('error', () => undefined)
    const lines = createInterface({ input: socket })
    socket.on('close', this.#gone)
    lines.on('close', () => {
      this.#over = true
      this.#more.notify()
    })
    lines.on('line', (text) => {
      const line = JSON.parse(text) as Line
      const type = String(line['type'])
      this.#counts.set(type, this.seen(type) + 1)
      this.#heard.push(line)
      this.#more.notify()
    })
  }
}
