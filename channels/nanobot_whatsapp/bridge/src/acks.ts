/** WhatsApp's confirmations of what we sent, by id. */

import type { BinaryNode } from 'baileys'
import type { Clock } from './clock.js'

/** What WhatsApp said to a message; `silent`: nothing, for as long as we wanted to wait. */
export type Ack = 'taken' | 'silent' | { readonly refusal: number }

export class Acks {
  readonly #waiting = new Map<string, (ack: Ack) => void>()

  constructor(private readonly clock: Clock) {}

  /** Begin to wait for the message's confirmation. */
  expect(id: string): Expected {
    let give: (ack: Ack) => void = () => undefined
    let stop = (): void => undefined
    const ack = new Promise<Ack>((resolve) => {
      give = resolve
    })
    this.#waiting.set(id, give)
    return {
      within: (ms) => {
        stop = this.clock.after(ms, () => {
          give('silent')
        })
        return ack
      },
      end: () => {
        stop()
        if (this.#waiting.get(id) === give) this.#waiting.delete(id)
      },
    }
  }

  /** Take an `ack` stanza of a message. */
  take({ attrs }: BinaryNode): void {
    const refusal = attrs['error']
    const ack = refusal === undefined ? 'taken' : { refusal: Number(refusal) }
    this.#waiting.get(attrs['id'] ?? '')?.(ack)
  }

  /** The connection is gone: nothing more will come. */
  close(): void {
    for (const give of this.#waiting.values()) give('silent')
    this.#waiting.clear()
  }
}

export interface Expected {
  /** The confirmation, waited for from now on. */
  within(ms: number): Promise<Ack>
  /** Stop waiting. */
  end(): void
}
