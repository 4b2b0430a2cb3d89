import assert from 'node:assert/strict'
import { mkdir, readdir, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Spool } from '../src/spool.js'
import { FakeClock, message, recordedLog, temporaryFolder } from './parts.js'

const clock = new FakeClock()
const { log } = recordedLog()

function idsOf(spool: Spool): readonly string[] {
  const ids: string[] = []
  for (let next = spool.after(0); next !== null; next = spool.after(next.seq)) {
    ids.push(`${next.seq}:${next.event.id}`)
  }
  return ids
}

test('events come back in order, also after a restart, until they are confirmed', async (t) => {
  const folder = await temporaryFolder(t)
  const spool = new Spool(folder, clock, log)
  for (const id of ['A', 'B', 'C']) spool.put(message(id))
  assert.deepEqual(idsOf(spool), ['1:A', '2:B', '3:C'])
  spool.confirm(2)
  const again = new Spool(folder, clock, log)
  assert.deepEqual(idsOf(again), ['3:C'])
  assert.equal(again.put(message('D')), 4)
  assert.deepEqual(await readdir(folder), ['000000000003.json', '000000000004.json'])
  assert.equal((await stat(join(folder, '000000000003.json'))).mode & 0o777, 0o600)
})

test('an event comes back exactly as it was put', async (t) => {
  const folder = await temporaryFolder(t)
  const event = message('A', { text: 'snow \u2603 \u{1f600}\u2028\n\ud83d', notes: ['n'] })
  new Spool(folder, clock, log).put(event)
  const next = new Spool(folder, clock, log).after(0)
  assert.deepEqual(next, { seq: 1, event })
})

test('an event that waits already is not put twice; an edit of it is another event', async (t) => {
  const spool = new Spool(await temporaryFolder(t), clock, log)
  const [event, edit] = [message('A'), message('A', { edits: 'A' })]
  assert.deepEqual([spool.put(event), spool.put(event), spool.put(edit)], [1, 1, 2])
  spool.confirm(1)
  assert.deepEqual(idsOf(spool), ['2:A'])
  assert.deepEqual([spool.put(edit), spool.put(event)], [2, 3])
})

test('a full spool refuses, so that WhatsApp keeps the message, until there is room', async (t) => {
  const spool = new Spool(await temporaryFolder(t), clock, log, 2)
  spool.put(message('A'))
  spool.put(message('B'))
  assert.throws(() => spool.put(message('C')), /2 messages are still waiting/)
  spool.confirm(1)
  spool.put(message('C'))
  assert.deepEqual(idsOf(spool), ['2:B', '3:C'])
})

test('an event that cannot be written is refused and nobody hears of it', async (t) => {
  const folder = await temporaryFolder(t)
  const spool = new Spool(folder, clock, log)
  await mkdir(join(folder, '000000000001.json', 'in the way'), { recursive: true })
  let heard = 0
  spool.onPut = () => heard++
  assert.throws(() => spool.put(message('A')))
  assert.equal(heard, 0)
  assert.equal(spool.size, 0)
})

test('damaged events and strange files cost only themselves', async (t) => {
  const folder = await temporaryFolder(t)
  const { log: words, lines } = recordedLog()
  new Spool(folder, clock, log).put(message('A'))
  await writeFile(join(folder, '000000000002.json'), '{"kind":"mess')
  await writeFile(join(folder, 'notes.txt'), 'mine')
  await writeFile(join(folder, '.000000000003.json.00ff.tmp'), '{"kind":"mess')
  const spool = new Spool(folder, clock, words)
  assert.deepEqual(idsOf(spool), ['1:A'])
  assert.equal(spool.put(message('B')), 3)
  assert.match(lines.join(), /^warning: a spooled message is damaged/)
  const names = (await readdir(folder)).map((name) => name.replace(/-.*/, ''))
  const corrupt = '000000000002.json.corrupt'
  assert.deepEqual(names.sort(), ['000000000001.json', corrupt, '000000000003.json', 'notes.txt'])
})

test('an event that is damaged while it waits is left out', async (t) => {
  const folder = await temporaryFolder(t)
  const spool = new Spool(folder, clock, log)
  for (const id of ['A', 'B', 'C']) spool.put(message(id))
  await writeFile(join(folder, '000000000002.json'), '')
  assert.deepEqual(idsOf(spool), ['1:A', '3:C'])
  assert.equal(spool.size, 2)
})
