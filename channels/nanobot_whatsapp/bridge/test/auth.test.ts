/** What becomes of the files that make us the linked device. */

import assert from 'node:assert/strict'
import { readFile, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Auth } from '../src/auth.js'
import { userOf } from '../src/jids.js'
import { FakeClock, recordedLog, temporaryFolder } from './parts.js'

const clock = new FakeClock()

function linked(folder: string): Auth {
  const auth = new Auth(folder, clock, recordedLog().log)
  auth.creds.me = { id: '15550001111:7@s.whatsapp.net', lid: '999:7@lid', name: 'Bot' }
  auth.creds.account = {}
  auth.save()
  return auth
}

test('a device that is not linked leaves no credentials', async (t) => {
  const folder = join(await temporaryFolder(t), 'auth')
  const auth = new Auth(folder, clock, recordedLog().log)
  auth.save()
  assert.ok(!auth.paired)
  assert.deepEqual(await readdir(folder), ['keys.jsonl'])
  assert.equal((await stat(folder)).mode & 0o777, 0o700)
  auth.keys.close()
})

test('credentials and keys come back as they were', async (t) => {
  const folder = await temporaryFolder(t)
  const before = linked(folder)
  const session = new Uint8Array([1, 2, 3])
  before.keys.set({ session: { a: session, b: session }, 'device-list': { u: ['0', '7'] } })
  before.keys.set({ session: { b: null } })
  before.keys.close()

  const after = new Auth(folder, clock, recordedLog().log)
  assert.ok(after.paired)
  assert.deepEqual(after.own, { number: '15550001111@s.whatsapp.net', lid: '999@lid' })
  assert.deepEqual(after.creds.noiseKey.public, Buffer.from(before.creds.noiseKey.public))
  assert.deepEqual(after.keys.get('session', ['a', 'b']), { a: Buffer.from(session) })
  assert.deepEqual(after.keys.get('device-list', ['u']), { u: ['0', '7'] })
  for (const name of ['creds.json', 'keys.jsonl']) {
    assert.equal((await stat(join(folder, name))).mode & 0o777, 0o600)
  }
  after.keys.close()
})

test('what the credentials were before the last change is kept', async (t) => {
  const folder = await temporaryFolder(t)
  const auth = linked(folder)
  for (const next of [2, 3, 4]) {
    auth.creds.nextPreKeyId = next
    auth.save()
  }
  auth.keys.close()
  const nextIn = async (name: string): Promise<unknown> => {
    return (JSON.parse(await readFile(join(folder, name), 'utf8')) as typeof auth.creds)
      .nextPreKeyId
  }
  assert.deepEqual([await nextIn('creds.json'), await nextIn('creds.json.old')], [4, 3])
  assert.deepEqual((await readdir(folder)).sort(), ['creds.json', 'creds.json.old', 'keys.jsonl'])
})

test('damaged credentials are set aside, and those before them are used', async (t) => {
  const folder = await temporaryFolder(t)
  const before = linked(folder)
  before.keys.set({ 'pre-key': { '40': before.creds.noiseKey } })
  before.creds.nextPreKeyId = 41
  before.save()
  before.keys.close()
  await writeFile(join(folder, 'creds.json'), '{"me":{"id":"')

  const { log, lines } = recordedLog()
  const after = new Auth(folder, clock, log)
  assert.ok(after.paired)
  assert.equal(after.creds.nextPreKeyId, 41, 'a pre-key that is out there is not made again')
  assert.equal(lines.filter((line) => line.startsWith('warning')).length, 2)
  assert.ok((await readdir(folder)).some((name) => name.startsWith('creds.json.corrupt-')))
  after.keys.close()
})

test('without credentials that work it has to be linked again', async (t) => {
  const folder = await temporaryFolder(t)
  linked(folder).keys.close()
  await writeFile(join(folder, 'creds.json'), '{"me":{},"account":{}}')
  await rm(join(folder, 'creds.json.old'), { force: true })
  const { log, lines } = recordedLog()
  const after = new Auth(folder, clock, log)
  assert.ok(!after.paired)
  assert.equal(lines.filter((line) => line.startsWith('warning')).length, 1)
  after.keys.close()
})

test('a pair of ids is known both ways, and told once', async (t) => {
  const folder = await temporaryFolder(t)
  const auth = new Auth(folder, clock, recordedLog().log)
  const told: string[] = []
  auth.keys.onLearned = (lid, number) => told.push(`${lid} ${number}`)
  auth.keys.set({ 'lid-mapping': { '15557770000': '888', '888_reverse': '15557770000' } })
  assert.deepEqual(told, ['888 15557770000'])
  assert.equal(auth.otherOf('888@lid'), '15557770000@s.whatsapp.net')
  assert.equal(auth.otherOf('15557770000@s.whatsapp.net'), '888@lid')
  assert.equal(auth.otherOf('777@lid'), '')
  auth.keys.close()
})

test('nobody else has one of our ids as their other one', async (t) => {
  const auth = linked(await temporaryFolder(t))
  const { number } = auth.own
  auth.keys.set({ 'lid-mapping': { [userOf(number)]: '888', '888_reverse': userOf(number) } })
  assert.deepEqual([auth.otherOf('888@lid'), auth.otherOf(number)], ['', ''])
  auth.keys.close()
})

test('an account that is given up is kept under another name', async (t) => {
  const folder = await temporaryFolder(t)
  const auth = linked(join(folder, 'auth'))
  const aside = auth.retire('logged-out')
  assert.match(aside, /auth\.logged-out-/)
  assert.deepEqual(await readdir(folder), [aside.slice(folder.length + 1)])
  assert.match(await readFile(join(aside, 'creds.json'), 'utf8'), /15550001111/)
})
