/** What several tests need: folders, events, a clock that stands still, a log to look at. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { MessageEvent } from '../src/protocol.js'
import type { Surroundings } from '../src/receive.js'
import type { Clock, Log } from '../src/runtime.js'

export async function temporaryFolder(test: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'bridge-'))
  test.after(() => rm(folder, { recursive: true, force: true }))
  return folder
}

export function message(id: string, changes: Partial<MessageEvent> = {}): MessageEvent {
  return {
    kind: 'message',
    id,
    chat: '15550001111@s.whatsapp.net',
    sender: '15550001111@s.whatsapp.net',
    alt: '',
    name: 'Ada',
    at: 1_700_000_000,
    from_me: false,
    group: false,
    title: '',
    offline: false,
    text: 'hello',
    mentions: [],
    mentions_me: false,
    quote: null,
    forwarded: false,
    media: null,
    notes: [],
    edits: '',
    deletes: '',
    reaction: '',
    unanswered: false,
    unknown: '',
    ...changes,
  }
}

/** What is known beside a message: we sent those whose ids begin with 3EB0. */
export function surroundings(changes: {
  readonly own?: Surroundings['auth']['own']
  readonly title?: string
  readonly otherOf?: (person: string) => string
  messageTo?: Surroundings['sent']['messageTo']
  readonly seen?: (name: string) => boolean
}): Surroundings {
  const { own, title = '', otherOf = () => '', messageTo, seen = () => false } = changes
  const isOurs = (id: string): boolean => id.startsWith('3EB0')
  return {
    auth: {
      own: own ?? { number: '15550001111@s.whatsapp.net', lid: '999@lid' },
      otherOf,
      keys: { seen },
    },
    sent: {
      has: isOurs,
      messageTo: messageTo ?? ((id) => (isOurs(id) ? { conversation: 'ours' } : undefined)),
    },
    groups: { nameOf: () => title },
  }
}

/** Time that passes only by `advance`. */
export class FakeClock implements Clock {
  #now = 1_700_000_000_000
  #timers: readonly { readonly at: number; readonly action: () => void }[] = []

  now(): number {
    return this.#now
  }

  after(ms: number, action: () => void): () => void {
    const timer = { at: this.#now + ms, action }
    this.#timers = [...this.#timers, timer]
    return () => {
      this.#timers = this.#timers.filter((each) => each !== timer)
    }
  }

  advance(ms: number): void {
    this.#now += ms
    const due = this.#timers.filter((each) => each.at <= this.#now)
    this.#timers = this.#timers.filter((each) => each.at > this.#now)
    for (const { action } of due) action()
  }
}

/** A log whose lines a test can read, as "level: message". */
export function recordedLog(): { readonly log: Log; readonly lines: readonly string[] } {
  const lines: string[] = []
  const log: Log = (level, text) => lines.push(`${level}: ${text}`)
  return { log, lines }
}
