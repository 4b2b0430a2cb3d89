import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { BinaryNode } from 'baileys'
import { oneByOne, type Trouble } from '../src/connection.js'
import { FakeClock } from './parts.js'

class Stanzas extends EventEmitter {
  isOpen = true

  read(listener: (stanza: BinaryNode) => Promise<void>): void {
    this.on('CB:message', listener as (stanza: BinaryNode) => unknown)
  }

  say(id: string, more: Record<string, string> = {}): void {
    this.emit('CB:message', { tag: 'message', attrs: { id, ...more } })
  }
}

class Noted implements Trouble {
  readonly failures: unknown[] = []
  readonly stucks: number[] = []

  failed(error: unknown): void {
    this.failures.push(error)
  }

  stuck(seconds: number): void {
    this.stucks.push(seconds)
  }
}

async function soon(): Promise<void> {
  for (let turns = 0; turns < 5; turns++) await setImmediate()
}

test('no message passes another one, whichever waited or takes long', async () => {
  const source = new Stanzas()
  const read: BinaryNode['attrs'][] = []
  let go = (): void => undefined
  const slow = new Promise<void>((resolve) => {
    go = resolve
  })
  source.read(async ({ attrs }: BinaryNode) => {
    if (attrs['id'] === '1') await slow
    read.push(attrs)
  })
  const trouble = new Noted()
  oneByOne(source, new FakeClock(), trouble)
  source.say('1', { offline: '0' })
  source.say('2')
  await soon()
  assert.deepEqual(read, [])
  go()
  await soon()
  assert.deepEqual(read, [{ id: '1' }, { id: '2' }])
  assert.deepEqual(trouble.failures, [])
})

test('one that fails holds up none, and none is read once the connection has ended', async () => {
  const source = new Stanzas()
  const read: string[] = []
  const trouble = new Noted()
  source.read(async ({ attrs }: BinaryNode) => {
    await Promise.resolve()
    if (attrs['id'] === '1') throw new Error('no')
    read.push(attrs['id'] ?? '')
    source.isOpen = false
  })
  oneByOne(source, new FakeClock(), trouble)
  for (const id of ['1', '2', '3']) source.say(id)
  await soon()
  assert.deepEqual(read, ['2'])
  assert.equal(trouble.failures.length, 1)
})

test('one that never ends is told of, and one that ends in time is not', async () => {
  const [source, clock, trouble] = [new Stanzas(), new FakeClock(), new Noted()]
  source.read(async ({ attrs }: BinaryNode) => {
    if (attrs['id'] === '2') await new Promise(() => undefined)
  })
  oneByOne(source, clock, trouble)
  source.say('1')
  await soon()
  clock.advance(59_999)
  source.say('2')
  await soon()
  clock.advance(59_999)
  assert.deepEqual(trouble.stucks, [])
  clock.advance(1)
  assert.deepEqual(trouble.stucks, [60])
})

test('other things get their turn between two messages', async () => {
  const source = new Stanzas()
  const order: string[] = []
  source.read(({ attrs }: BinaryNode) => {
    order.push(attrs['id'] ?? '')
    if (attrs['id'] === '1') void setImmediate().then(() => order.push('something else'))
    return Promise.resolve()
  })
  oneByOne(source, new FakeClock(), new Noted())
  source.say('1')
  source.say('2')
  await soon()
  assert.deepEqual(order, ['1', 'something else', '2'])
})
