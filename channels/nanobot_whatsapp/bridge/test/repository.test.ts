/** The way of a message through the keys to the disk, with real Signal sessions. */

import assert from 'node:assert/strict'
import { AsyncResource } from 'node:async_hooks'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import {
  addTransactionCapability,
  type BinaryNode,
  Curve,
  DEFAULT_CONNECTION_CONFIG,
  encodeWAMessage,
  initAuthCreds,
  parseAndInjectE2ESessions,
  proto,
  type SignalKeyStoreWithTransaction,
  type SignalRepositoryWithLIDStore,
  unpadRandomMax16,
} from 'baileys'
import { Keys } from '../src/auth.js'
import { eventKey, type MessageEvent } from '../src/protocol.js'
import { Receiver } from '../src/receive.js'
import { Gate, keeping } from '../src/repository.js'
import { baileysLogger } from '../src/runtime.js'
import type { Spool } from '../src/spool.js'
import { Device } from './fake/device.mjs'
import { FakeClock, recordedLog, surroundings, temporaryFolder } from './parts.js'

const ME = '15550001111@s.whatsapp.net'
const ANN = '888000111@lid'
const GROUP = '120363000000000001@g.us'
const { log } = recordedLog()

/** A spool that can refuse, and that says when it was asked. */
class Shelf implements Pick<Spool, 'put'> {
  readonly events: MessageEvent[] = []
  refuses = false

  constructor(private readonly steps: string[]) {}

  put(event: MessageEvent): number {
    if (this.refuses) throw new Error('ENOSPC')
    const known = this.events.findIndex((each) => eventKey(each) === eventKey(event))
    if (known >= 0) return known + 1
    this.steps.push(`spooled ${event.text}`)
    return this.events.push(event)
  }
}

/** Our device with its keys on disk, and Ann's, which has a session with it. */
class World {
  readonly steps: string[] = []
  readonly shelf = new Shelf(this.steps)
  readonly failures: unknown[] = []
  readonly ann = new Device()
  keys!: SignalKeyStoreWithTransaction
  repository!: SignalRepositoryWithLIDStore
  receiver!: Receiver
  readonly #creds = initAuthCreds()

  private constructor(private readonly path: string) {}

  static async begin(t: TestContext): Promise<World> {
    const world = new World(join(await temporaryFolder(t), 'keys.jsonl'))
    const preKey = Curve.generateKeyPair()
    world.restart()
    t.after(() => {
      world.close()
    })
    await world.keys.set({ 'pre-key': { '1': preKey } })
    const { signedPreKey, signedIdentityKey, registrationId } = world.#creds
    await world.ann.begin(ME, {
      registrationId,
      identity: signedIdentityKey.public,
      signedPreKey: {
        keyId: signedPreKey.keyId,
        public: signedPreKey.keyPair.public,
        signature: signedPreKey.signature,
      },
      preKey: { keyId: 1, public: preKey.public },
    })
    world.steps.length = 0
    return world
  }

  /** What a killed helper finds when it starts again: only the disk is left. */
  restart(): void {
    const store = new Keys(this.path, new FakeClock(), log)
    const told = {
      get: store.get.bind(store),
      set: (data: Parameters<Keys['set']>[0]) => {
        store.set(data)
        this.steps.push(`keys ${Object.keys(data).sort().join(' ')}`)
      },
    }
    const logger = baileysLogger(log)
    const options = { maxCommitRetries: 1, delayBetweenTriesMs: 0 }
    this.keys = addTransactionCapability(told, logger, options)
    this.receiver = new Receiver(
      this.shelf,
      surroundings({
        own: { number: ME, lid: '' },
        messageTo: () => undefined,
        seen: (name) => store.seen(name),
      }),
      log,
    )
    const creds = this.#creds
    const inner = DEFAULT_CONNECTION_CONFIG.makeSignalRepository(
      { creds, keys: this.keys },
      logger,
      () => Promise.resolve([]),
    )
    const gate = new Gate((error) => this.failures.push(error))
    this.repository = keeping(inner, this.keys, this.receiver, gate)
  }

  close(): void {
    this.ann.close()
    this.repository.close?.()
  }

  async written(id: string, text: string): Promise<BinaryNode> {
    return stanza(id, ANN, [await this.ann.encrypt(ME, { conversation: text })])
  }

  async writtenToGroup(id: string, text: string): Promise<BinaryNode> {
    const parts = await this.ann.encryptForGroup(ME, GROUP, ANN, { conversation: text })
    return stanza(id, GROUP, parts, { participant: ANN })
  }

  /** Do as Baileys does with a stanza; what it makes of each part: a text, '' or an error. */
  async deliver(node: BinaryNode): Promise<readonly string[]> {
    const found: string[] = []
    this.receiver.watch(node)
    for (const part of node.content as BinaryNode[]) {
      found.push(await this.#decrypt(part).catch((error: unknown) => `failed: ${String(error)}`))
    }
    return found
  }

  async #decrypt({ attrs, content }: BinaryNode): Promise<string> {
    const { repository } = this
    const msg = content as Uint8Array
    const type = attrs['type'] === 'pkmsg' ? 'pkmsg' : 'msg'
    const padded =
      attrs['type'] === 'skmsg'
        ? await repository.decryptGroupMessage({ group: GROUP, authorJid: ANN, msg })
        : await repository.decryptMessage({ jid: ANN, type, ciphertext: msg })
    const message = proto.Message.decode(unpadRandomMax16(padded))
    const item = message.senderKeyDistributionMessage
    if (item) await repository.processSenderKeyDistributionMessage({ item, authorJid: ANN })
    return message.conversation ?? ''
  }
}

function stanza(
  id: string,
  from: string,
  content: BinaryNode[],
  attrs: Record<string, string> = {},
): BinaryNode {
  return { tag: 'message', attrs: { id, from, type: 'text', t: '1700000000', ...attrs }, content }
}

test('a message is on disk before the keys, and the keys before Baileys goes on', async (t) => {
  const world = await World.begin(t)
  const delivered = world.deliver(await world.written('A1', 'one'))
  assert.deepEqual(
    [...(await delivered), ...world.steps],
    ['one', 'spooled one', 'keys identity-key nanobot-seen pre-key session'],
  )
})

test('what the disk refused is read again when it comes again', async (t) => {
  const world = await World.begin(t)
  const one = await world.written('A1', 'one')
  world.shelf.refuses = true
  assert.match(String(await world.deliver(one)), /ENOSPC/)
  assert.deepEqual(world.steps, [], 'the keys did not move')
  assert.equal(world.failures.length, 1)
  assert.match(String(await world.deliver(one)), /has ended/, 'nothing more passes')

  world.shelf.refuses = false
  world.restart()
  assert.deepEqual(await world.deliver(one), ['one'])
  assert.deepEqual(await world.deliver(await world.written('A2', 'two')), ['two'])
  assert.deepEqual(
    world.shelf.events.map(({ text }) => text),
    ['one', 'two'],
  )
})

test('the key of a group is kept, and its message comes again if it was refused', async (t) => {
  const world = await World.begin(t)
  const first = await world.writtenToGroup('G1', 'one')
  world.shelf.refuses = true
  assert.match(String(await world.deliver(first)), /ENOSPC/)
  assert.deepEqual(world.steps, ['keys identity-key pre-key sender-key session'])

  world.shelf.refuses = false
  world.restart()
  assert.deepEqual(await world.deliver(first), ['', 'one'], 'no part is a reason to ask again')
  assert.deepEqual(await world.deliver(await world.writtenToGroup('G2', 'two')), ['two'])
  assert.deepEqual(
    world.shelf.events.map(({ text }) => text),
    ['one', 'two'],
  )
  assert.ok(world.shelf.events.every(({ sender, chat }) => sender === ANN && chat === GROUP))
})

test('a key is only taken for the group that it came to', async (t) => {
  const world = await World.begin(t)
  const brought = await world.writtenToGroup('G1', 'one')
  const [key] = brought.content as BinaryNode[]
  assert.ok(key)
  const other = '120363000000000002@g.us'
  assert.deepEqual(await world.deliver(stanza('G2', other, [key], { participant: ANN })), [''])
  assert.deepEqual(
    world.steps.filter((step) => step.includes('sender-key')),
    [],
  )
})

test('a message in the spool is confirmed when it comes again, not asked for', async (t) => {
  const world = await World.begin(t)
  const stanzas = [
    await world.written('A1', 'one'),
    await world.writtenToGroup('G1', 'two'),
    await world.writtenToGroup('G2', 'three'),
  ]
  for (const each of stanzas) await world.deliver(each)
  const again = (): Promise<unknown> => Promise.all(stanzas.map((each) => world.deliver(each)))
  assert.deepEqual(await again(), [[''], ['', ''], ['']])
  world.restart()
  assert.deepEqual(await again(), [[''], ['', ''], ['']], 'the spool remembers')
  assert.equal(world.shelf.events.length, 3)
})

test('the same ciphertext under another id is no message', async (t) => {
  const world = await World.begin(t)
  const one = await world.written('A1', 'one')
  const parts = (one.content as BinaryNode[]).map((part) => {
    return { ...part, content: Buffer.from(part.content as Buffer) }
  })
  const copy = stanza('A2', ANN, parts)
  const [first, second] = await Promise.all([world.deliver(one), world.deliver(copy)])
  assert.deepEqual(first, ['one'])
  assert.match(String(second), /failed/)
  assert.deepEqual(
    world.shelf.events.map(({ id }) => id),
    ['A1'],
  )
})

test('writing and reading at once does not undo either', async (t) => {
  const world = await World.begin(t)
  await world.deliver(await world.written('A1', 'one'))
  await world.ann.decrypt(ME, '', await encrypted(world, 'first'))
  const texts = ['two', 'three', 'four']
  const stanzas = await Promise.all(texts.map((text) => world.written(text, text)))
  const [two, ...more] = stanzas.map(outside((stanza) => world.deliver(stanza)))
  // As Baileys sends: in a transaction of its own, whose begin and end lie around the reading.
  const mine = await world.keys.transaction(async () => {
    await world.repository.validateSession(ANN)
    assert.deepEqual(await two?.(), ['two'])
    const first = await encrypted(world, 'mine')
    const heard = Promise.all(more.map((read) => read()))
    const second = await encrypted(world, 'and mine')
    assert.deepEqual(await heard, [['three'], ['four']])
    return [first, second]
  }, 'sending')
  const read = await Promise.all(mine.map((each) => world.ann.decrypt(ME, '', each)))
  assert.deepEqual(
    read.map((each) => each.conversation),
    ['mine', 'and mine'],
  )

  world.restart()
  for (const { content } of stanzas) {
    const replayed = stanza('X', ANN, content as BinaryNode[])
    assert.match(String(await world.deliver(replayed)), /failed/, 'the ratchet has not gone back')
  }
  assert.deepEqual(await world.deliver(await world.written('A5', 'five')), ['five'])
  const last = await world.ann.decrypt(ME, '', await encrypted(world, 'last'))
  assert.equal(last.conversation, 'last', 'no key was used twice')
})

/** Work that is prepared here and begins when it is called, in the context of here. */
function outside<T, R>(work: (value: T) => Promise<R>): (value: T) => () => Promise<R> {
  return (value) => AsyncResource.bind(() => work(value))
}

async function encrypted(world: World, text: string): Promise<BinaryNode> {
  const data = encodeWAMessage({ conversation: text })
  const { type, ciphertext } = await world.repository.encryptMessage({ jid: ANN, data })
  return { tag: 'enc', attrs: { v: '2', type }, content: ciphertext }
}

test('messages of a group are read in whatever order they come', async (t) => {
  const world = await World.begin(t)
  await world.deliver(await world.writtenToGroup('G1', 'one'))
  const two = await world.writtenToGroup('G2', 'two')
  const three = await world.writtenToGroup('G3', 'three')
  assert.deepEqual(await world.deliver(three), ['three'])
  assert.deepEqual(await world.deliver(two), ['two'])
})

test('a late message of an older session does not spoil the newer one', async (t) => {
  const world = await World.begin(t)
  await world.deliver(await world.written('A1', 'one'))
  await world.ann.decrypt(ME, '', await encrypted(world, 'first'))
  const late = await world.written('A2', 'two')
  // Baileys begins new sessions now and then, for instance after each start.
  const user = { tag: 'user', attrs: { jid: ANN }, content: await world.ann.bundle() }
  const list = { tag: 'list', attrs: {}, content: [user] }
  const answer = { tag: 'iq', attrs: {}, content: [list] }
  await parseAndInjectE2ESessions(answer, world.repository)
  const mine = await encrypted(world, 'mine')
  assert.deepEqual(await world.deliver(late), ['two'])
  assert.equal((await world.ann.decrypt(ME, '', mine)).conversation, 'mine')
  assert.deepEqual(await world.deliver(await world.written('A3', 'three')), ['three'])
})
