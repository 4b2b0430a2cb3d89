/** The types of `whatsapp.mjs`, for tests in TypeScript. README.md says what each thing is for. */

import type { SendParams } from '../../src/protocol.js'

/** The version that refused clients find. */
export const CURRENT_REVISION: number

export interface FakeEvent {
  readonly event: string
  readonly id: string
  readonly text: string
  readonly to: string
  readonly by: readonly string[]
  readonly again: readonly string[]
  readonly kind: string
  readonly code: string
  readonly count: number
  readonly offline: number
  readonly revision: number
  readonly on: boolean
  readonly type: string
  readonly path: string
  readonly mentions: readonly string[]
  readonly quote: { readonly id: string; readonly sender: string } | null
  readonly edits: string
  readonly media: {
    readonly mime: string
    readonly name: string
    readonly size: number
    readonly base64: string
  } | null
}

export interface Told {
  readonly from: string
  readonly text?: string
  readonly id?: string
  readonly group?: string
  readonly to?: string
  readonly as?: 'number' | 'lid'
  readonly hidden?: boolean
  readonly at?: number
  readonly mentions?: readonly string[]
  readonly quote?: Partial<Pick<NonNullable<SendParams['quote']>, 'id' | 'sender' | 'text'>>
  readonly edit?: string
  readonly file?: {
    readonly kind: string
    readonly mime: string
    readonly name: string
    readonly base64: string
  }
  readonly raw?: object
}

export interface Person {
  readonly number: string
  readonly lid: string
  forget(): void
}

export class FakeWhatsApp {
  static start(): Promise<FakeWhatsApp>
  stop(): Promise<void>
  claimed: number
  readonly trust: string
  readonly events: readonly FakeEvent[]
  readonly violations: readonly string[]
  readonly people: {
    readonly me: Person
    add(person: { key: string; number: string; lid: string; name: string }): Person
    addGroup(group: { id: string; subject: string; members: string[]; addressing?: string }): void
    get(key: string): Person
  }
  readonly desk: { readonly mailbox: { readonly ids: readonly string[] } }
  readonly delivery: {
    set(policy: { mode: string; code?: number; times?: number }): void
    release(): void
  }
  readonly media: { fail(statuses: number[]): void; expireAll(): void }
  onEvent(listener: (event: FakeEvent) => void): void
  until(
    event: string,
    matches?: (event: FakeEvent) => boolean,
    seconds?: number,
  ): Promise<FakeEvent>
  scan(qr: string): void
  enterCode(code: string): Promise<void>
  seed(folder: string): void
  say(told: Told): Promise<string>
  askAgain(key: string, chat: string, id: string): void
  cut(): void
  streamError(code: number): void
  refuseLogins(reasons: number[]): void
}
