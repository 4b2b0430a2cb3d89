/**
 * Baileys' Signal repository, made to keep what it decrypts and to be safe to be killed anywhere.
 *
 * As soon as a message was decrypted, Baileys tells WhatsApp that it has arrived, and WhatsApp
 * forgets it. Invariant: a decryption is one transaction, in which the message is
 * brought to disk first and the ratchet after it; only then does Baileys get to see the message. So
 * a message is in the spool, or it can be decrypted again when WhatsApp delivers it again.
 *
 * Three things in Baileys and libsignal would break that, and are put right here:
 * - Encryption runs inside of a transaction that is committed after the message was sent, and with
 *   what was read at its beginning; so it could undo a decryption in between, and a kill in between
 *   would use a key twice. Here each step is a transaction of its own.
 * - libsignal runs the steps for one address in a queue and so in the context of another step,
 *   whose transaction then gets the keys. Here steps with one session never overlap.
 * - libsignal spoils sessions that it only tries, see `withoutAttempts`.
 */

import { AsyncResource } from 'node:async_hooks'
import {
  type BinaryNode,
  jidDecode,
  proto,
  type SignalKeyStoreWithTransaction,
  type SignalRepositoryWithLIDStore,
  unpadRandomMax16,
} from 'baileys'
import { isGroup } from './jids.js'
import { partsOf, type Receiver } from './receive.js'

/** Lets work through until it is closed, and knows when all of it has ended. */
export class Gate {
  #open = true
  readonly #inHand = new Set<Promise<unknown>>()

  /** `failed` is called when what was decrypted could not be kept; the gate is closed then. */
  constructor(private readonly failed: (error: unknown) => void) {}

  async pass<T>(work: () => Promise<T>): Promise<T> {
    if (!this.#open) throw new Error('this connection has ended')
    const done = work()
    this.#inHand.add(done)
    try {
      return await done
    } finally {
      this.#inHand.delete(done)
    }
  }

  /** Nothing more passes. Resolves when what is inside has ended. */
  async close(): Promise<void> {
    this.#open = false
    await Promise.allSettled(this.#inHand)
  }

  fail(error: unknown): void {
    this.#open = false
    this.failed(error)
  }
}

type Encrypted = 'pkmsg' | 'msg' | 'skmsg'

/** A message without content, padded: Baileys confirms it to WhatsApp and does nothing else. */
const NOTHING = Uint8Array.of(1)

/** Wrap a repository; call it where no transaction runs. */
export function keeping(
  inner: SignalRepositoryWithLIDStore,
  keys: SignalKeyStoreWithTransaction,
  receiver: Receiver,
  gate: Gate,
): SignalRepositoryWithLIDStore {
  const outside = new AsyncResource('signal')
  const alone = <T>(work: () => Promise<T>): Promise<T> =>
    gate.pass(() => outside.runInAsyncScope(work))
  const step = <T>(jid: string, work: () => Promise<T>): Promise<T> =>
    alone(async () => keys.transaction(work, await lockOf(jid, keys)))

  async function decrypt(
    ciphertext: Uint8Array,
    type: Encrypted,
    jid: string,
    work: () => Promise<Uint8Array>,
  ): Promise<Uint8Array> {
    const stanza = receiver.stanzaOf(ciphertext)
    const done = { decrypted: false }
    try {
      return await step(jid, async () => {
        const padded = await work()
        done.decrypted = true
        const message = decoded(padded)
        if (stanza !== undefined && message !== null) {
          await distribute(stanza, message)
          await keys.set(receiver.keep(stanza, message))
        }
        return padded
      })
    } catch (error) {
      if (done.decrypted) gate.fail(error)
      else if (stanza !== undefined && isOver(stanza, type, receiver)) return NOTHING
      throw error
    }
  }

  async function withOneSession(
    given: Parameters<typeof inner.decryptMessage>[0],
  ): Promise<Uint8Array> {
    const address = inner.jidToSignalProtocolAddress(given.jid)
    const record = async (): Promise<SessionRecord | undefined> => {
      // Baileys says that these are bytes.
      return (await keys.get('session', [address]))[address] as SessionRecord | undefined
    }
    const before = await record()
    const padded = await inner.decryptMessage(given)
    const after = await record()
    if (given.type === 'msg' && before !== undefined && after !== undefined) {
      const put = withoutAttempts(before, after) as SessionRecord & Uint8Array
      await keys.set({ session: { [address]: put } })
    }
    return padded
  }

  /**
   * The sender's key for the group that the message came to, in the same transaction as the message
   * that brought it. For which group it is, is the sender's word, and each key is kept for good.
   */
  async function distribute({ attrs }: BinaryNode, message: proto.IMessage): Promise<void> {
    const item = message.senderKeyDistributionMessage
    const [from, authorJid] = [attrs['from'] ?? '', attrs['participant'] ?? '']
    if (item?.groupId !== from || !isGroup(from) || authorJid === '') return
    try {
      await inner.processSenderKeyDistributionMessage({ item, authorJid })
    } catch {
      // A broken key is its sender's fault; messages that need it are asked for again.
    }
  }

  return {
    ...inner,
    decryptMessage: (given) =>
      decrypt(given.ciphertext, given.type, given.jid, () => withOneSession(given)),
    decryptGroupMessage: (given) =>
      decrypt(given.msg, 'skmsg', given.group, () => inner.decryptGroupMessage(given)),
    // Baileys passes on each key once more; those for the right group are stored by then.
    processSenderKeyDistributionMessage: () => Promise.resolve(),
    encryptMessage: (given) => step(given.jid, () => inner.encryptMessage(given)),
    encryptGroupMessage: (given) => step(given.group, () => inner.encryptGroupMessage(given)),
    getSenderKeyDistributionMessage: (given) =>
      step(given.group, () => inner.getSenderKeyDistributionMessage(given)),
    injectE2ESession: (given) => step(given.jid, () => inner.injectE2ESession(given)),
    hasSenderKey: (given) => alone(() => inner.hasSenderKey(given)),
    getSessionInfo: (jid) => alone(() => inner.getSessionInfo(jid)),
    validateSession: (jid) => alone(() => inner.validateSession(jid)),
    migrateSession: (from, to) => alone(() => inner.migrateSession(from, to)),
    deleteSession: (jids) => alone(() => inner.deleteSession(jids)),
  }
}

/**
 * Whether it does not matter that a part cannot be decrypted: it is known, or it is the part of a
 * group message that only brings the key; without the key the other part fails as well.
 */
function isOver(stanza: BinaryNode, type: Encrypted, receiver: Receiver): boolean {
  if (receiver.has(stanza)) return true
  return type !== 'skmsg' && partsOf(stanza).some((part) => part.attrs['type'] === 'skmsg')
}

function decoded(padded: Uint8Array): proto.IMessage | null {
  try {
    const message = proto.Message.decode(unpadRandomMax16(padded))
    return message.deviceSentMessage?.message ?? message
  } catch {
    // Not a message; Baileys finds that out as well and asks the sender again.
    return null
  }
}

/** One name for one session: a number that belongs to a LID shares the LID's. */
async function lockOf(jid: string, keys: SignalKeyStoreWithTransaction): Promise<string> {
  const parts = jidDecode(jid)
  if (parts === undefined || isGroup(jid)) return jid
  const { user, device = 0, server } = parts
  const isNumber = server === 's.whatsapp.net' || server === 'hosted'
  const known = isNumber ? await keys.get('lid-mapping', [user]) : {}
  return `session ${known[user] ?? user}.${device}`
}

/** What libsignal keeps of the sessions with one device. */
interface SessionRecord {
  readonly _sessions: Readonly<Record<string, { readonly indexInfo: { readonly used: number } }>>
}

/**
 * `after` with the sessions as in `before` that were only tried.
 *
 * There can be many sessions with one device, and libsignal tries one after the other. An attempt
 * with the wrong one fails, but moves that session's ratchet, and libsignal keeps that: the other
 * side goes on with a session that we cannot read any more. So all but the one that worked are put
 * back. That one was stamped with the time.
 */
function withoutAttempts(before: SessionRecord, after: SessionRecord): SessionRecord {
  const [old, now] = [before._sessions, after._sessions]
  const all = Object.entries(now)
  const stamped = all.filter(([key, { indexInfo }]) => indexInfo.used !== old[key]?.indexInfo.used)
  // Within one millisecond the stamp may be the same; then it is that of the latest session.
  const candidates = stamped.length > 0 ? stamped : all
  const [worked] = candidates.toSorted(([, a], [, b]) => b.indexInfo.used - a.indexInfo.used)
  const entries = all.map(([key, entry]) => {
    return [key, key === worked?.[0] ? entry : (old[key] ?? entry)] as const
  })
  return { ...after, _sessions: Object.fromEntries(entries) }
}
