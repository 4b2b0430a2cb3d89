/**
 * The daemon's side for tests of the whole helper: a real process on a real socket.
 *
 * It says welcome, confirms events, and remembers all that is said to it.
 */

import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type {
  ErrorCode,
  MessageEvent,
  ReplyData,
  Request,
  StateReport,
  ToDaemon,
  Welcome,
} from '../../src/protocol.js'
import type { FakeWhatsApp } from '../fake/whatsapp.mjs'

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url))
const TRUST = fileURLToPath(new URL('../trust.mjs', import.meta.url))
const FAULTS = fileURLToPath(new URL('../faults.mjs', import.meta.url))
const PATIENCE = 15_000

export const LINKED: Welcome = {
  protocol: 1,
  pair: 'none',
  number: '',
  read_receipts: true,
  online: false,
}

type Said<T extends ToDaemon['type']> = Extract<ToDaemon, { readonly type: T }>

/** The helper did not do what it was asked for. */
export class Refused extends Error {
  constructor(
    readonly code: ErrorCode,
    message: string,
  ) {
    super(message)
  }
}

export class Daemon {
  readonly said: ToDaemon[] = []
  /** What the helper wrote to stderr. */
  errors = ''
  readonly #waiting = new Set<() => void>()
  readonly #taken = new Set<ToDaemon>()
  #socket: Socket | null = null
  #requests = 0

  private constructor(
    readonly helper: ChildProcess,
    private readonly server: Server,
  ) {}

  /** Start a helper on the folder and talk to it; `fault` is of those in `faults.mjs`. */
  static async start(
    fake: FakeWhatsApp,
    folder: string,
    welcome: Welcome = LINKED,
    fault = '',
  ): Promise<Daemon> {
    const path = join(folder, 'bridge.sock')
    rmSync(path, { force: true })
    const server = createServer()
    server.listen(path)
    await once(server, 'listening')
    const preloads = ['--import', TRUST, ...(fault === '' ? [] : ['--import', FAULTS])]
    const helper = spawn(
      process.execPath,
      [...preloads, MAIN, '--socket', 'bridge.sock', '--folder', '.'],
      {
        cwd: folder,
        env: { PATH: process.env['PATH'], NANOBOT_FAKE_WHATSAPP: fake.trust, NANOBOT_FAULT: fault },
        stdio: ['ignore', 'inherit', 'pipe'],
      },
    )
    const daemon = new Daemon(helper, server)
    helper.stderr.on('data', (chunk: Buffer) => {
      daemon.errors += chunk.toString()
    })
    server.on('connection', (socket) => {
      daemon.#serve(socket, welcome)
    })
    return daemon
  }

  /** End the connection; the helper has to end by itself. Resolves to its exit code. */
  async stop(): Promise<number | null> {
    this.#socket?.destroy()
    await this.exited()
    return this.helper.exitCode
  }

  /** Resolves when the helper has ended, to the signal that killed it or null. */
  async exited(): Promise<NodeJS.Signals | null> {
    if (this.helper.exitCode === null && this.helper.signalCode === null) {
      await once(this.helper, 'exit')
    }
    this.#socket?.destroy()
    this.server.close()
    return this.helper.signalCode
  }

  /** The next of its kind that matches and was not returned before; waits for it. */
  async until<T extends ToDaemon['type']>(
    type: T,
    matches: (said: Said<T>) => boolean = () => true,
  ): Promise<Said<T>> {
    const fits = (said: ToDaemon): said is Said<T> =>
      said.type === type && !this.#taken.has(said) && matches(said as Said<T>)
    for (;;) {
      const found = this.said.find(fits)
      if (found !== undefined) {
        this.#taken.add(found)
        return found
      }
      await this.#more(type)
    }
  }

  /** The next report of this state. */
  async state(state: StateReport['state']): Promise<StateReport> {
    return this.until('state', (said) => said.state === state)
  }

  /** The next message, or the next with this id. */
  async message(id?: string): Promise<MessageEvent> {
    const said = await this.until('event', ({ event }) => id === undefined || event.id === id)
    return said.event
  }

  /** All messages so far, in order. */
  get messages(): readonly MessageEvent[] {
    return this.said.flatMap((said) => (said.type === 'event' ? [said.event] : []))
  }

  /** Ask for something; throws `Refused` if it was not done. */
  async ask(request: Request): Promise<ReplyData> {
    const id = ++this.#requests
    this.#say({ type: 'request', id, method: request.method, params: request.params })
    const reply = await this.until('reply', (said) => said.id === id)
    if (reply.ok) return reply.data
    throw new Refused(reply.error.code, reply.error.message)
  }

  #say(line: object): void {
    this.#socket?.write(`${JSON.stringify(line)}\n`)
  }

  #serve(socket: Socket, welcome: Welcome): void {
    this.#socket = socket
    // A helper that is killed resets the connection; `exited` is where a test sees that.
    socket.on('error', () => undefined)
    const lines = createInterface({ input: socket })
    lines.on('error', () => undefined)
    lines.on('line', (line) => {
      const said = JSON.parse(line) as ToDaemon
      this.said.push(said)
      if (said.type === 'hello') this.#say({ type: 'welcome', ...welcome })
      if (said.type === 'event') this.#say({ type: 'ack', seq: said.seq })
      for (const wake of [...this.#waiting]) wake()
    })
  }

  async #more(type: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const wake = (): void => {
        clearTimeout(timer)
        this.#waiting.delete(wake)
        resolve()
      }
      const timer = setTimeout(() => {
        this.#waiting.delete(wake)
        const last = this.said.slice(-15).map((said) => JSON.stringify(said).slice(0, 300))
        reject(new Error(`no ${type} came; the last were:\n${last.join('\n')}\n${this.errors}`))
      }, PATIENCE)
      this.#waiting.add(wake)
    })
  }
}
