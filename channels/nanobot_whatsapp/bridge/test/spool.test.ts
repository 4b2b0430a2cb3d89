import assert from 'node:assert/strict'
import { mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { eventKey } from '../src/protocol.js'
import { Spool, SpoolFull } from '../src/spool.js'
import { FakeClock, message, recordedLog, temporaryFolder } from './parts.js'

const clock = new FakeClock()
const { log } = recordedLog()

async function idsOf(spool: Spool): Promise<readonly string[]> {
  const ids: string[] = []
  for (let next = await spool.after(0); next !== null; next = await spool.after(next.seq)) {
    ids.push(`${next.seq}:${next.event.id}`)
  }
  return ids
}

test('events come back in order, also after a restart, until they are confirmed', async (t) => {
  const folder = await temporaryFolder(t)
  const spool = await Spool.open(folder, clock, log)
  await Promise.all(['A', 'B', 'C'].map((id) => spool.put(message(id))))
  assert.deepEqual(await idsOf(spool), ['1:A', '2:B', '3:C'])
  await spool.confirm(2)
  const again = await Spool.open(folder, clock, log)
  assert.deepEqual(await idsOf(again), ['3:C'])
  assert.equal(await again.put(message('D')), 4)
  assert.deepEqual(await readdir(folder), ['000000000003.json', '000000000004.json'])
  assert.equal((await stat(join(folder, '000000000003.json'))).mode & 0o777, 0o600)
})

test('an event comes back exactly as it was put', async (t) => {
  const folder = await temporaryFolder(t)
  const event = message('A', { text: 'snow \u2603 \u{1f600}\u2028\n\ud83d', notes: ['n'] })
  await (await Spool.open(folder, clock, log)).put(event)
  const next = await (await Spool.open(folder, clock, log)).after(0)
  assert.deepEqual(next, { seq: 1, event })
})

test('an event that waits already is not put twice; an edit of it is another event', async (t) => {
  const spool = await Spool.open(await temporaryFolder(t), clock, log)
  const [event, edit] = [message('A'), message('A', { edits: 'A' })]
  const numbers = await Promise.all([spool.put(event), spool.put(event), spool.put(edit)])
  assert.deepEqual(numbers, [1, 1, 2])
  assert.ok(spool.has(eventKey(event)))
  await spool.confirm(1)
  assert.ok(!spool.has(eventKey(event)))
  assert.ok(spool.has(eventKey(edit)))
})

test('a full spool refuses, so that WhatsApp keeps the message, until there is room', async (t) => {
  const spool = await Spool.open(await temporaryFolder(t), clock, log, 2)
  await spool.put(message('A'))
  await spool.put(message('B'))
  await assert.rejects(spool.put(message('C')), SpoolFull)
  await spool.confirm(1)
  await spool.put(message('C'))
  assert.deepEqual(await idsOf(spool), ['2:B', '3:C'])
})

test('an event that cannot be written is refused and nobody hears of it', async (t) => {
  const folder = await temporaryFolder(t)
  const spool = await Spool.open(folder, clock, log)
  await mkdir(join(folder, '000000000001.json', 'in the way'), { recursive: true })
  let heard = 0
  spool.onPut(() => heard++)
  await assert.rejects(spool.put(message('A')))
  assert.equal(heard, 0)
  assert.equal(spool.size, 0)
})

test('damaged events and strange files cost only themselves', async (t) => {
  const folder = await temporaryFolder(t)
  const { log: words, lines } = recordedLog()
  await (await Spool.open(folder, clock, log)).put(message('A'))
  await writeFile(join(folder, '000000000002.json'), '{"kind":"mess')
  await writeFile(join(folder, 'notes.txt'), 'mine')
  await writeFile(join(folder, '.000000000003.json.00ff.tmp'), '{"kind":"mess')
  const spool = await Spool.open(folder, clock, words)
  assert.deepEqual(await idsOf(spool), ['1:A'])
  assert.equal(await spool.put(message('B')), 3)
  assert.match(lines.join(), /^warning: a spooled message is damaged/)
  const names = (await readdir(folder)).map((name) => name.replace(/-.*/, ''))
  const corrupt = '000000000002.json.corrupt'
  assert.deepEqual(names.sort(), ['000000000001.json', corrupt, '000000000003.json', 'notes.txt'])
})

test('an event that is damaged while it waits is left out', async (t) => {
  const folder = await temporaryFolder(t)
  const spool = await Spool.open(folder, clock, log)
  for (const id of ['A', 'B', 'C']) await spool.put(message(id))
  await writeFile(join(folder, '000000000002.json'), '')
  assert.deepEqual(await idsOf(spool), ['1:A', '3:C'])
  assert.equal(spool.size, 2)
})
