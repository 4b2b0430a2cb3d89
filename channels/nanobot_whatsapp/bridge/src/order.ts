/**
 * Messages in the order in which WhatsApp sends them.
 *
 * Baileys begins with each message as it comes: those that waited at WhatsApp go through a queue,
 * and the others pass it; and before a message waits for its turn, its sender is looked up, which
 * takes longer for somebody new. So what was written first might come out last. Here one message is
 * done with before the next one begins, whatever it is. As all would wait for one that never ends,
 * each has its time.
 */

import type { EventEmitter } from 'node:events'
import type { BinaryNode } from 'baileys'
import type { Clock } from './clock.js'
import { Serial } from './serial.js'

const MESSAGE = 'CB:message'
/** More than Baileys waits for the few answers of WhatsApp's that it may need for a message. */
const PATIENCE = 60

type Listener = (stanza: BinaryNode) => Promise<void>

/** Where stanzas come from. */
export interface Source extends EventEmitter {
  readonly isOpen: boolean
}

/** Told of what goes wrong with a message. */
export interface Trouble {
  failed(error: unknown): void
  /** One has not ended for so many seconds; all others wait for it. */
  stuck(seconds: number): void
}

/**
 * Let those who listen for messages by now have one after the other, and none once the connection
 * has ended.
 */
export function oneByOne(source: Source, clock: Clock, trouble: Trouble): void {
  const turn = new Serial()
  const listeners = source.listeners(MESSAGE) as Listener[]
  source.removeAllListeners(MESSAGE)
  source.on(MESSAGE, (stanza: BinaryNode) => {
    const read = async (): Promise<void> => {
      const done = clock.after(PATIENCE * 1000, () => {
        trouble.stuck(PATIENCE)
      })
      try {
        for (const listener of listeners) if (source.isOpen) await listener(asNew(stanza))
      } finally {
        done()
      }
    }
    turn.run(read).catch((error: unknown) => {
      trouble.failed(error)
    })
  })
}

/** The stanza without the mark that puts it into Baileys' own queue. */
function asNew(stanza: BinaryNode): BinaryNode {
  const attrs = Object.entries(stanza.attrs).filter(([name]) => name !== 'offline')
  return { ...stanza, attrs: Object.fromEntries(attrs) }
}
