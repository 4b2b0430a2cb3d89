/** What goes out, and where files may come from, by table. */

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { generateWAMessageContent } from 'baileys'
import { urlOf } from '../src/media.js'
import type { SendParams } from '../src/protocol.js'
import { Acks, failure, piecesOf, quotedOf, SentStore } from '../src/send.js'
import { FakeClock, recordedLog, temporaryFolder } from './parts.js'

const ANN = '15557770000@s.whatsapp.net'
const GROUP = '120363000000000001@g.us'
const HOST = 'https://mmg.whatsapp.net'

function params(changes: Partial<SendParams>): SendParams {
  return { to: ANN, id: 'B1', text: 'hi', edits: '', quote: null, file: null, ...changes }
}

function sound(kind: 'audio' | 'voice'): NonNullable<SendParams['file']> {
  return { path: '/a.ogg', kind, mime: '', name: '' }
}

test('text under sound goes ahead, because sound has no caption', () => {
  const pieces = piecesOf(params({ file: sound('voice') }))
  assert.deepEqual(
    pieces.map(({ id }) => id),
    ['B1T', 'B1'],
  )
  assert.deepEqual(pieces[0]?.content, { text: 'hi', linkPreview: null })
  assert.equal(piecesOf(params({ file: sound('audio'), text: '' })).length, 1)
})

test('no page is fetched for a preview of what the agent writes', async () => {
  const fetched: string[] = []
  const getUrlInfo = (url: string): Promise<undefined> => {
    fetched.push(url)
    return Promise.resolve(undefined)
  }
  const options = { getUrlInfo } as unknown as Parameters<typeof generateWAMessageContent>[1]
  const text = 'see https://evil.example/?secret'
  for (const file of [null, sound('voice')]) {
    const said = piecesOf(params({ text, file }))[0]
    assert.ok(said)
    const message = await generateWAMessageContent(said.content, options)
    assert.equal(message.extendedTextMessage?.text, text)
  }
  assert.deepEqual(fetched, [])
})

test('a quote in a group names its writer', () => {
  const quote = { id: 'A1', sender: '888@lid', text: 'before', from_me: false }
  assert.equal(quotedOf(GROUP, quote).key.participant, '888@lid')
  assert.equal(quotedOf(ANN, quote).key.participant, undefined)
  assert.equal(quotedOf(GROUP, { ...quote, from_me: true }).key.participant, undefined)
})

const PLACES: readonly (readonly [string, string, string | null])[] = [
  ['/v/t62/x?ccb=1&oh=2', '', `${HOST}/v/t62/x?ccb=1&oh=2`],
  ['/v/x', 'https://evil.example/y', `${HOST}/v/x`],
  ['', 'https://media-fra.cdn.whatsapp.net/v/x', 'https://media-fra.cdn.whatsapp.net/v/x'],
  ['@evil.example/x', '', null],
  ['/x@evil.example', '', null],
  ['.evil.example/x', '', null],
  ['/x\\y', '', null],
  ['', 'https://evil.example/x', null],
  ['', 'https://evilwhatsapp.net/x', null],
  ['', 'https://mmg.whatsapp.net.evil.example/x', null],
  ['', 'https://a:b@mmg.whatsapp.net/x', null],
  ['', 'https://mmg.whatsapp.net:8443/x', null],
  ['', 'http://mmg.whatsapp.net/x', null],
  ['', 'file:///etc/passwd', null],
  ['', '', null],
]

for (const [path, url, place] of PLACES) {
  test(`a file at ${JSON.stringify([path, url])} is fetched from ${String(place)}`, () => {
    assert.equal(urlOf({ path, url }), place)
  })
}

test('a message is only shown to whom it was sent', async (t) => {
  const path = join(await temporaryFolder(t), 'sent.jsonl')
  const sent = new SentStore(path, new FakeClock(), recordedLog().log)
  sent.keep('A', ANN, { conversation: 'for Ann' })
  const seen = (chat: string, other: string): boolean =>
    sent.messageTo('A', chat, other) !== undefined
  assert.ok(seen(ANN, '888@lid'))
  assert.ok(seen('888@lid', ANN), 'the same person by the other id')
  assert.ok(!seen('777@lid', ''))
  assert.ok(!seen('', ''))
  assert.equal(sent.messageTo('B', '', ''), undefined, 'nothing is known of the message')
  sent.close()
})

test('refusals say whether it makes sense to try again', () => {
  assert.deepEqual(
    [429, 503, 404, 463, 500].map((code) => failure(code)?.code),
    ['later', 'later', 'refused', 'refused', 'refused'],
  )
  assert.equal(failure(0), null)
})

test('a confirmation is waited for so long, and not beyond the connection', async () => {
  const clock = new FakeClock()
  const acks = new Acks(clock)
  const ack = (id: string, error?: string): void => {
    acks.take({ tag: 'ack', attrs: error === undefined ? { id } : { id, error } })
  }
  const early = acks.expect('A', 10)
  ack('A')
  assert.equal(await early, 0)
  const refused = acks.expect('B', 10)
  ack('other')
  ack('B', '463')
  assert.equal(await refused, 463)
  const late = acks.expect('C', 10)
  clock.advance(10)
  assert.equal(await late, null)
  const cut = acks.expect('D', 10)
  acks.close()
  assert.equal(await cut, null)
})

test('what was sent is known after a restart, the newest of it', async (t) => {
  const path = join(await temporaryFolder(t), 'sent.jsonl')
  const open = (): SentStore => new SentStore(path, new FakeClock(), recordedLog().log, 2)
  const before = open()
  for (const id of ['A', 'B', 'C']) before.keep(id, ANN, { conversation: id })
  before.close()
  const after = open()
  assert.deepEqual(
    ['A', 'B', 'C'].map((id) => after.has(id)),
    [false, true, true],
  )
  assert.equal(after.messageTo('C', ANN)?.conversation, 'C')
  after.close()
})

test('what was sent is forgotten after a week, on disk as well', async (t) => {
  const path = join(await temporaryFolder(t), 'sent.jsonl')
  const [clock, day] = [new FakeClock(), 24 * 3600_000]
  const sent = new SentStore(path, clock, recordedLog().log)
  sent.keep('OLD', ANN, { conversation: 'old' })
  clock.advance(2 * day)
  sent.keep('NEW', ANN, { conversation: 'new' })
  clock.advance(5 * day + 1)
  sent.close()
  const left = await readFile(path, 'utf8')
  assert.deepEqual([sent.has('OLD'), sent.has('NEW')], [false, true])
  assert.ok(!left.includes('OLD') && left.includes('NEW'), left)

  clock.advance(2 * day)
  new SentStore(path, clock, recordedLog().log).close()
  assert.equal(await readFile(path, 'utf8'), '', 'nor does it come back after a restart')
})
