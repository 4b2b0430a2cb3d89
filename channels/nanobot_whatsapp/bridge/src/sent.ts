/**
 * What we sent lately, by id: for phones that could not read it and ask again, and to know our own.
 *
 * What always holds: when `keep` has resolved, the message is on disk; the newest ones are kept, a
 * bounded number of them, for a week; what is not kept any more is gone from the disk a day later.
 */

import { proto } from 'baileys'
import { AppendLog, type LineCodec, type LogState } from './appendlog.js'
import type { Clock } from './clock.js'
import type { Log } from './log.js'
import { same } from './jids.js'
import type { Jid } from './protocol.js'

const MOST = 2000
const DAY = 24 * 3600_000
const LONGEST = 7 * DAY

interface Sent {
  readonly id: string
  readonly to: Jid
  /** Milliseconds since 1970. */
  readonly at: number
  /** The message in WhatsApp's form, base64. */
  readonly message: string
}

export class SentStore {
  #cancel: () => void = () => undefined

  private constructor(
    private readonly state: SentState,
    private readonly log: AppendLog<Sent>,
    private readonly clock: Clock,
  ) {}

  static async open(path: string, clock: Clock, log: Log, most = MOST): Promise<SentStore> {
    const state = new SentState(most)
    const kept = await AppendLog.open(path, CODEC, state, clock, log)
    const store = new SentStore(state, kept, clock)
    await store.#tidy()
    return store
  }

  /** Bring a message to disk before it is sent. */
  keep(id: string, to: Jid, message: proto.IMessage): Promise<void> {
    const bytes = proto.Message.encode(message).finish()
    const at = this.clock.now()
    return this.log.append({ id, to, at, message: Buffer.from(bytes).toString('base64') })
  }

  /** Whether we sent the message with this id. */
  has(id: string): boolean {
    return this.state.find(id) !== undefined
  }

  /**
   * The message with this id, if it went to this chat; a person may have an alternative id. Nobody
   * gets to see what went to others.
   */
  messageTo(id: string, chat: Jid, alternative: Jid = ''): proto.IMessage | undefined {
    const sent = this.state.find(id)
    if (sent === undefined || !(same(chat, sent.to) || same(alternative, sent.to))) return undefined
    return proto.Message.decode(Buffer.from(sent.message, 'base64'))
  }

  close(): Promise<void> {
    this.#cancel()
    return this.log.close()
  }

  /** Forget what is old, now and once a day, in the file as well. */
  async #tidy(): Promise<void> {
    this.#cancel = this.clock.after(DAY, () => void this.#tidy())
    this.state.forgetBefore(this.clock.now() - LONGEST)
    if (this.state.isLeftOver) await this.log.renew()
  }
}

class SentState implements LogState<Sent> {
  readonly #kept = new Map<string, Sent>()
  #isLeftOver = false

  constructor(private readonly most: number) {}

  /** Whether there may be more in the file than here. */
  get isLeftOver(): boolean {
    return this.#isLeftOver
  }

  find(id: string): Sent | undefined {
    return this.#kept.get(id)
  }

  apply(sent: Sent): void {
    this.#forget(sent.id)
    this.#kept.set(sent.id, sent)
    const oldest = this.#kept.keys().next()
    if (this.#kept.size > this.most && !oldest.done) this.#forget(oldest.value)
  }

  forgetBefore(time: number): void {
    for (const { id, at } of this.#kept.values()) if (at < time) this.#forget(id)
  }

  live(): Iterable<Sent> {
    return this.#kept.values()
  }

  #forget(id: string): void {
    if (this.#kept.delete(id)) this.#isLeftOver = true
  }
}

const CODEC: LineCodec<Sent> = {
  encode: (sent) => JSON.stringify(sent),
  decode(line) {
    const value: unknown = JSON.parse(line)
    if (!isSent(value)) throw new TypeError('not a sent message')
    return value
  },
}

function isSent(value: unknown): value is Sent {
  if (typeof value !== 'object' || value === null) return false
  const { id, to, at, message } = value as Partial<Record<keyof Sent, unknown>>
  const isText = [id, to, message].every((each) => typeof each === 'string')
  return isText && typeof at === 'number'
}
