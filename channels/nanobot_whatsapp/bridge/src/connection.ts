/**
 * One connection to WhatsApp, from its opening to its end.
 *
 * Invariant: a message that could not be brought to disk ends the connection before WhatsApp hears
 * anything of it, so that it is delivered again; once `ended` has resolved, nothing of this
 * connection touches the keys any more.
 */

import { EventEmitter } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import {
  type BaileysEventMap,
  type BinaryNode,
  DEFAULT_CONNECTION_CONFIG,
  type GroupMetadata,
  makeWASocket,
  type SignalKeyStoreWithTransaction,
  type SocketConfig,
  type UserFacingSocketConfig,
  type WAMessageKey,
  type WASocket,
  type WAVersion,
} from 'baileys'
import type { Auth } from './auth.js'
import { type Closing, closingOf, wordsOf } from './errors.js'
import { bare, isGroup, isPublic } from './jids.js'
import type { Jid } from './protocol.js'
import type { Receiver } from './receive.js'
import { Gate, keeping } from './repository.js'
import { baileysLogger, type Clock, keepNewest, type Log } from './runtime.js'
import { Sender, type SentStore } from './send.js'

/** WhatsApp has 20 s for each answer. */
const ANSWER_WITHIN = 20_000
/** How long work on the keys may go on after the connection has ended. */
const END_WITHIN = 60_000

export interface ConnectionParts {
  readonly auth: Auth
  readonly sent: SentStore
  readonly groups: Groups
  readonly receiver: Receiver
  readonly clock: Clock
  readonly log: Log
  readonly version: WAVersion
  readonly online: boolean
  /** Called when WhatsApp takes messages from us. */
  opened(): void
  /** Called with what to show as a QR code when WhatsApp is ready to link an account. */
  qr(data: string): void
}

export class Connection {
  readonly sock: WASocket
  readonly sender: Sender
  readonly ended: Promise<Closing>
  /** Whether WhatsApp takes messages from us. */
  isOpen = false
  readonly #gate: Gate
  #end: (closing: Closing) => void = () => undefined
  /** Why our side ended it. */
  #stopped: Closing | null = null

  constructor(private readonly parts: ConnectionParts) {
    const { auth, groups, clock, log } = parts
    this.ended = new Promise((resolve) => {
      this.#end = resolve
    })
    this.#gate = new Gate(this.#diskFailed)
    auth.keys.onFailure = this.#diskFailed
    this.sock = withoutSurprises(() => makeWASocket(this.#config()), log)
    groups.connected((group) => this.sock.groupMetadata(group))
    const logger = baileysLogger(log)
    this.sender = new Sender({ sock: this.sock, sent: parts.sent, groups, clock, logger })
    this.#listen()
  }

  #config(): UserFacingSocketConfig {
    const { auth, groups, receiver, log, version, online } = this.parts
    return {
      auth,
      version,
      logger: baileysLogger(log),
      browser: ['nanobot', 'Chrome', '1.0.0'],
      markOnlineOnConnect: online,
      emitOwnEvents: false,
      syncFullHistory: false,
      shouldSyncHistoryMessage: () => false,
      shouldIgnoreJid: isPublic,
      generateHighQualityLinkPreview: false,
      defaultQueryTimeoutMs: ANSWER_WITHIN,
      // While Baileys pauses over a message that it cannot read, the others wait.
      retryRequestDelayMs: 0,
      // A disk that refuses once ends the connection; there is nothing to wait for.
      transactionOpts: { maxCommitRetries: 1, delayBetweenTriesMs: 0 },
      cachedGroupMetadata: (group) => groups.metadata(group),
      getMessage: (key) => this.#message(key),
      makeSignalRepository: (state, logger, numbersToLids) => {
        // Without the LID a message is read by the number; with an error it would be refused.
        const lids: typeof numbersToLids = async (numbers) =>
          numbersToLids?.(numbers).catch(() => [])
        const inner = DEFAULT_CONNECTION_CONFIG.makeSignalRepository(state, logger, lids)
        // Baileys has made the keys that it was given into these.
        const keys = state.keys as SignalKeyStoreWithTransaction
        return keeping(inner, keys, receiver, this.#gate)
      },
    }
  }

  #listen(): void {
    const { ev, ws } = this.sock
    const { auth, receiver, groups, clock, log } = this.parts
    oneByOne(ws, clock, {
      failed: (error) => {
        log('debug', `a message was not read: ${wordsOf(error)}`)
      },
      stuck: (seconds) => {
        this.#stop(`reading a message took longer than ${seconds} s`)
      },
    })
    ws.prependListener('CB:message', (stanza: BinaryNode) => {
      receiver.watch(stanza)
      void groups.meet(bare(stanza.attrs['from']))
    })
    ws.on('CB:ack,class:message', (stanza: BinaryNode) => {
      this.sender.acks.take(stanza)
    })
    ev.on('connection.update', ({ connection, qr, lastDisconnect }) => {
      if (qr !== undefined) this.parts.qr(qr)
      if (connection === 'open') {
        this.isOpen = true
        this.parts.opened()
      }
      if (connection === 'close') this.#closed(lastDisconnect?.error)
    })
    ev.on('creds.update', () => {
      this.#toDisk(() => {
        auth.save()
      })
    })
    ev.on('messages.upsert', ({ messages }) => {
      this.#toDisk(() => {
        receiver.takeOpen(messages)
      })
    })
    ev.on('call', (calls) => {
      this.#toDisk(() => {
        receiver.takeCalls(calls)
      })
    })
    const changed = (all: BaileysEventMap['groups.update']): void => {
      for (const { id, subject } of all) {
        if (id !== undefined) groups.changed(id, subject)
      }
    }
    ev.on('groups.update', changed)
    ev.on('groups.upsert', changed)
    ev.on('group-participants.update', ({ id }) => {
      groups.changed(id)
    })
  }

  #closed(error: unknown): void {
    this.isOpen = false
    this.sender.acks.close()
    const closing = this.#stopped ?? closingOf(error)
    const hanging = this.parts.clock.after(END_WITHIN, () => {
      // What it waits for is unknown, and the next connection must not overlap it: start over.
      throw new Error('an operation on the keys did not finish')
    })
    // What is being brought to disk now must not meet the next connection.
    void this.#gate.close().then(() => {
      hanging()
      this.#end(closing)
    })
  }

  #toDisk(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.#diskFailed(error)
    }
  }

  readonly #diskFailed = (error: unknown): void => {
    this.#stop(`cannot write to disk: ${wordsOf(error)}`, true)
  }

  /** End it from our side: nothing leaves from now on. */
  #stop(words: string, disk = false): void {
    if (this.#stopped !== null) return
    this.#stopped = { code: 0, words, expire: 0, disk }
    this.isOpen = false
    void this.#gate.close()
    void this.sock.end(undefined)
  }

  /** A message that a phone asks for again. */
  #message({ id, remoteJid }: WAMessageKey): ReturnType<SocketConfig['getMessage']> {
    const { sent, auth } = this.parts
    const asking = bare(remoteJid)
    return Promise.resolve(sent.messageTo(id ?? '', asking, auth.otherOf(asking)))
  }
}

/**
 * Make the socket so that rejections of its listeners are logged: most listeners are asynchronous,
 * and reject when the connection breaks while they answer.
 */
function withoutSurprises(make: () => WASocket, log: Log): WASocket {
  const before = EventEmitter.captureRejections
  EventEmitter.captureRejections = true
  try {
    const sock = make()
    Object.assign(sock.ws, {
      [EventEmitter.captureRejectionSymbol]: (error: unknown) => {
        log('debug', `while the connection ended: ${wordsOf(error)}`)
      },
    })
    return sock
  } finally {
    EventEmitter.captureRejections = before
  }
}

const FRESH = 10 * 60_000
const MOST_GROUPS = 200
const MOST_NAMES = 2000

interface Known {
  readonly metadata: GroupMetadata
  readonly since: number
}

/**
 * What is known of groups: who is in them, for sending, and their names, for texts.
 *
 * Invariant: a list of members is never older than the last change that WhatsApp told us of, nor
 * than `FRESH`; the number of groups kept is bounded.
 */
export class Groups {
  readonly #known = new Map<Jid, Known>()
  readonly #names = new Map<Jid, string>()
  #ask: (group: Jid) => Promise<GroupMetadata> = () => Promise.reject(new Error('not connected'))

  constructor(private readonly clock: Clock) {}

  /** `ask` asks WhatsApp from now on; we were away and may have missed changes. */
  connected(ask: (group: Jid) => Promise<GroupMetadata>): void {
    this.#ask = ask
    this.#known.clear()
  }

  /** The group's name, '' if it is not known yet. */
  nameOf(group: Jid): string {
    return this.#names.get(group) ?? ''
  }

  /** The group's members and properties; rejects if WhatsApp does not say. */
  async metadata(group: Jid): Promise<GroupMetadata> {
    const known = this.#known.get(group)
    if (known !== undefined && this.clock.now() - known.since < FRESH) return known.metadata
    const metadata = await this.#ask(group)
    this.changed(group, metadata.subject)
    this.#known.set(group, { metadata, since: this.clock.now() })
    keepNewest(this.#known, MOST_GROUPS)
    return metadata
  }

  /** Find out a group's name for next time, if it is not known; never rejects. */
  async meet(group: Jid): Promise<void> {
    if (!isGroup(group) || this.#names.has(group)) return
    this.#names.set(group, '')
    // It is only a name: if there is no answer, the next message asks again.
    await this.metadata(group).catch(() => this.#names.delete(group))
  }

  /** Something has changed in the group, perhaps its name. */
  changed(group: Jid, name?: string): void {
    this.#known.delete(group)
    if (name === undefined) return
    this.#names.set(group, name)
    keepNewest(this.#names, MOST_NAMES)
  }
}

const MESSAGE = 'CB:message'
/** More than Baileys waits for the few answers of WhatsApp's that it may need for a message. */
const PATIENCE = 60

/** Told of what goes wrong with a message. */
export interface Trouble {
  failed(error: unknown): void
  /** One has not ended for so many seconds; all others wait for it. */
  stuck(seconds: number): void
}

/**
 * Let those who listen for messages by now have one after the other, in the order in which WhatsApp
 * sends them, and none once the connection has ended.
 *
 * Baileys starts on each message as it arrives: those that waited at WhatsApp go through a queue,
 * others bypass it, and a sender is looked up first, which takes longer for a new one. So messages
 * could change places. Here a message is finished before the next one begins. As all would wait for
 * one that never ends, each has a time limit.
 */
export function oneByOne(
  source: EventEmitter & { isOpen: boolean },
  clock: Clock,
  trouble: Trouble,
): void {
  const listeners = source.listeners(MESSAGE) as ((stanza: BinaryNode) => Promise<void>)[]
  const read = async ({ attrs, ...rest }: BinaryNode): Promise<void> => {
    const done = clock.after(PATIENCE * 1000, () => {
      trouble.stuck(PATIENCE)
    })
    // Without this mark it does not get into Baileys' own queue.
    const unmarked = Object.entries(attrs).filter(([name]) => name !== 'offline')
    try {
      for (const listener of listeners) {
        if (source.isOpen) await listener({ ...rest, attrs: Object.fromEntries(unmarked) })
      }
    } catch (error) {
      trouble.failed(error)
    } finally {
      done()
    }
    // What a message brings to disk blocks the process: other things get their turn in between.
    await setImmediate()
  }
  let last = Promise.resolve()
  source.removeAllListeners(MESSAGE)
  source.on(MESSAGE, (stanza: BinaryNode) => {
    last = last.then(() => read(stanza))
  })
}
