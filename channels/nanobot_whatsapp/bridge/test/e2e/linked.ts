/** Linking a device and what it does then, with the whole helper: all tests in their order. */

import assert from 'node:assert/strict'
import { readFile, readdir, readlink, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { CURRENT_REVISION, type FakeWhatsApp } from '../fake/whatsapp.mjs'
import { LINKED, type Daemon } from './daemon.js'
import { ANN, ANN_LID, BOB_LID, GROUP, ME, MY_LID, text, unlinked, type Place } from './place.js'

const FILE = Buffer.from('the contents of a file')

describe('a linked helper', () => {
  let place: Place
  let fake: FakeWhatsApp
  let daemon: Daemon

  before(async () => {
    place = await unlinked()
    fake = place.fake
  })

  after(async () => {
    await place.close()
    assert.deepEqual(fake.violations, [])
  })

  test('is linked with a QR code', async () => {
    const pairing = await place.helper({ ...LINKED, pair: 'qr' })
    fake.scan((await pairing.until('qr')).data)
    const { me } = await pairing.state('open')
    assert.deepEqual([me?.number, me?.lid], [ME, MY_LID])
    await fake.until('online')
    assert.equal(await pairing.stop(), 0)
    assert.equal((await stat(join(place.folder, 'auth', 'creds.json'))).mode & 0o777, 0o600)
  })

  test('needs nothing after a restart, and follows WhatsApp to a newer version', async () => {
    await fake.until('login')
    fake.refuseLogins([405])
    daemon = await place.connected()
    assert.equal((await fake.until('login')).revision, CURRENT_REVISION)
  })

  test('opens no port', async () => {
    const folder = `/proc/${daemon.helper.pid ?? 0}/fd`
    const names = await readdir(folder)
    const open = await Promise.all(names.map((fd) => readlink(join(folder, fd)).catch(() => '')))
    const listening = await Promise.all(['tcp', 'tcp6', 'udp', 'udp6'].map(listeners))
    const ours = listening.flat().filter((inode) => open.includes(`socket:[${inode}]`))
    assert.deepEqual(ours, [])
  })

  test('hands on what people write, from their number and from their LID', async () => {
    await fake.say({ from: 'ann', text: 'by number', id: 'A1', at: 1_700_000_000 })
    const byNumber = await daemon.message('A1')
    assert.deepEqual([byNumber.text, byNumber.at], ['by number', 1_700_000_000])
    assert.deepEqual([byNumber.chat, byNumber.sender, byNumber.alt], [ANN, ANN, ANN_LID])
    assert.deepEqual([byNumber.name, byNumber.group, byNumber.offline], ['Ann', false, false])

    await fake.say({ from: 'ann', text: 'by LID', id: 'A2', as: 'lid' })
    const byLid = await daemon.message('A2')
    assert.deepEqual([byLid.chat, byLid.sender, byLid.alt], [ANN_LID, ANN_LID, ANN])
  })

  test('hands on a message once, and nothing that its owner writes to others', async () => {
    await fake.say({ from: 'ann', text: 'once', id: 'D1' })
    await fake.say({ from: 'ann', text: 'once', id: 'D1' })
    await fake.say({ from: 'me', text: 'for Ann', to: 'ann', id: 'D2' })
    await fake.say({ from: 'me', text: 'note to self', id: 'D3' })
    const own = await daemon.message('D3')
    assert.deepEqual([own.from_me, own.text, own.chat], [true, 'note to self', ME])
    const ids = daemon.messages.map(({ id }) => id).filter((id) => id.startsWith('D'))
    assert.deepEqual(ids, ['D1', 'D3'])
  })

  test('knows when a group means it, by number and by LID', async () => {
    const mentioned = async (id: string, mention: string): Promise<boolean> => {
      await fake.say({ from: 'bob', text: 'you there', group: GROUP, id, mentions: [mention] })
      const event = await daemon.message(id)
      assert.deepEqual([event.group, event.chat, event.sender], [true, GROUP, BOB_LID])
      return event.mentions_me
    }
    assert.equal(await mentioned('G1', ME), true)
    assert.equal(await mentioned('G2', MY_LID), true)
    assert.equal(await mentioned('G3', ANN_LID), false)
  })

  test('hands on an edit as one', async () => {
    await fake.say({ from: 'ann', text: 'changed', edit: 'A1', id: 'E1' })
    const edit = await daemon.message('E1')
    assert.deepEqual([edit.edits, edit.text], ['A1', 'changed'])
  })

  test('fetches files, within the limit', async () => {
    const file = { kind: 'image', mime: 'image/png', name: '', base64: FILE.toString('base64') }
    await fake.say({ from: 'ann', text: 'look', id: 'F1', file })
    const { media, text: caption } = await daemon.message('F1')
    assert.deepEqual([media?.kind, media?.mime, caption], ['image', 'image/png', 'look'])
    const download = (limit: number) => {
      assert.ok(media)
      return daemon.ask({ method: 'download', params: { ref: media.ref, limit } })
    }
    const { path } = await download(1000)
    assert.deepEqual(await readFile(join(place.folder, String(path))), FILE)
    await assert.rejects(download(3), { code: 'refused' })
  })

  test('sends what people can read', async () => {
    const done = await daemon.ask(text(ANN, 'B1', 'hello Ann'))
    assert.equal(done['id'], 'B1')
    const hello = await fake.until('received')
    assert.deepEqual([hello.text, hello.by.toSorted()], ['hello Ann', ['ann', 'me']])

    const quote = { id: 'A2', sender: ANN_LID, text: 'by LID', from_me: false }
    const answer = { ...text(ANN_LID, 'B2', 'and again').params, quote }
    await daemon.ask({ method: 'send', params: answer })
    assert.deepEqual((await fake.until('received')).quote, { id: 'A2', sender: ANN_LID })

    await daemon.ask(text(GROUP, 'B3', 'hi all'))
    const inGroup = await fake.until('received')
    assert.deepEqual([inGroup.text, inGroup.by.toSorted()], ['hi all', ['ann', 'bob', 'me']])
  })

  test('changes what it sent', async () => {
    const changed = { ...text(ANN, 'B1E', 'hello Ann, once more').params, edits: 'B1' }
    await daemon.ask({ method: 'send', params: changed })
    const { edits, text: words, by } = await fake.until('received', ({ id }) => id === 'B1E')
    assert.deepEqual([edits, words], ['B1', 'hello Ann, once more'])
    assert.deepEqual(by.toSorted(), ['ann', 'me'])
  })

  test('sends files', async () => {
    const path = join(place.folder, 'report.txt')
    await writeFile(path, FILE)
    const file = { path, kind: 'document', mime: 'text/plain', name: 'report.txt' } as const
    await daemon.ask({ method: 'send', params: { ...text(ANN, 'B4', 'here').params, file } })
    const { media, text: caption } = await fake.until('received')
    assert.deepEqual([media?.name, media?.mime, caption], ['report.txt', 'text/plain', 'here'])
    assert.deepEqual(Buffer.from(media?.base64 ?? '', 'base64'), FILE)
  })

  test('sends again what a phone could not read', async () => {
    fake.people.get('bob').forget()
    await daemon.ask(text(BOB_LID, 'B5', 'can you read this?'))
    await fake.until('unreadable')
    await fake.until('received', ({ id, by }) => id === 'B5' && by.includes('bob'))
  })

  test('says what became of a message', async () => {
    fake.delivery.set({ mode: 'error', code: 463, times: 1 })
    await assert.rejects(daemon.ask(text(ANN, 'B6', 'no')), { code: 'refused' })
    fake.delivery.set({ mode: 'error', code: 429, times: 1 })
    await assert.rejects(daemon.ask(text(ANN, 'B7', 'too fast')), { code: 'later' })
    const nobody = text('15550009999@s.whatsapp.net', 'B8', 'who is it?')
    await assert.rejects(daemon.ask(nobody), { code: 'refused' })
  })

  test('shows that it types and has read', async () => {
    await daemon.ask({ method: 'typing', params: { to: ANN, on: true } })
    assert.equal((await fake.until('typing')).on, true)
    await daemon.ask({ method: 'read', params: { chat: ANN, id: 'A1', sender: ANN } })
    assert.equal((await fake.until('read')).id, 'A1')
  })

  test('comes back after a cut with what was written meanwhile', async () => {
    fake.delivery.set({ mode: 'cut', times: 1 })
    await assert.rejects(daemon.ask(text(ANN, 'B9', 'did it arrive?')), { code: 'unknown' })
    await fake.until('closed')
    await fake.say({ from: 'ann', text: 'one', id: 'C1' })
    await fake.say({ from: 'bob', text: 'two', id: 'C2', group: GROUP })
    await daemon.state('open')
    const one = await daemon.message('C1')
    const two = await daemon.message('C2')
    assert.deepEqual([one.text, one.offline, two.text, two.offline], ['one', true, 'two', true])
    assert.equal(two.title, 'Friends')
    await daemon.ask(text(ANN, 'B9', 'did it arrive?'))
    const again = await fake.until('received', ({ id, again }) => id === 'B9' && again.length > 0)
    assert.deepEqual(again.by, [], 'a phone knows the id')
  })

  test('ends with its account when the phone unlinks it', async () => {
    fake.streamError(401)
    await daemon.state('logged_out')
    const names = await readdir(place.folder)
    assert.ok(!names.includes('auth'), 'its keys are worth nothing any more')
  })
})

const LISTENS = '0A'
const TAKES_DATAGRAMS = '07'

/** Inodes of the sockets that take connections or datagrams. */
async function listeners(protocol: string): Promise<readonly string[]> {
  const table = await readFile(`/proc/net/${protocol}`, 'utf8')
  return table
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state]) => state === LISTENS || state === TAKES_DATAGRAMS)
    .map((fields) => fields[9] ?? '')
}
