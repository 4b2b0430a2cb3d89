import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Lines, MAX_LINE, parseLine, ProtocolError } from '../src/protocol.js'

function parsed(value: unknown): unknown {
  return parseLine(JSON.stringify(value))
}

test('each of the daemon’s lines becomes its value', () => {
  const welcome = { type: 'welcome', protocol: 1, pair: 'code', number: '15550001111' } as const
  const wishes = { read_receipts: true, online: false }
  assert.deepEqual(parsed({ ...welcome, ...wishes }), { ...welcome, ...wishes })
  assert.deepEqual(parsed({ type: 'ack', seq: 17 }), { type: 'ack', seq: 17 })
  assert.deepEqual(parsed({ type: 'ping', id: 9 }), { type: 'ping', id: 9 })
  assert.deepEqual(parsed({ type: 'goodbye', reason: 'no' }), { type: 'goodbye', reason: 'no' })
})

const TO = '15550001111@s.whatsapp.net'
const REF = { kind: 'image', path: '/v', url: '', key: 'AA==', sha256: 'AA==' }
const REQUESTS: Readonly<Record<string, object>> = {
  send: {
    to: TO,
    id: '3EB0',
    text: 'hello',
    edits: '3EA9',
    quote: { id: 'A', sender: TO, text: 'hi', from_me: false },
    file: { path: '/tmp/a.png', kind: 'image', mime: 'image/png', name: 'a.png' },
  },
  download: { ref: REF, limit: 100 },
  typing: { to: TO, on: true },
  read: { chat: TO, id: 'A', sender: TO },
}

for (const [method, params] of Object.entries(REQUESTS)) {
  test(`a request to ${method} is understood, with fields from the future`, () => {
    const line = { type: 'request', id: 5, method, params: { ...params, future: [] }, more: 1 }
    const request = { method, params: params }
    assert.deepEqual(parsed(line), { type: 'request', id: 5, request })
  })
}

test('a message to send edits, quotes and brings nothing unless it says so', () => {
  const params = { to: TO, id: '3EB0', text: 'hello' }
  const request = { method: 'send', params: { ...params, edits: '', quote: null, file: null } }
  const line = { type: 'request', id: 5, method: 'send', params }
  assert.deepEqual(parsed(line), { type: 'request', id: 5, request })
})

test('what is unknown is said to be unknown', () => {
  assert.deepEqual(parsed({ type: 'dance' }), { type: 'unknown', name: 'dance' })
})

const WRONG_REQUESTS: readonly (readonly [object, RegExp])[] = [
  [{}, /"method"/],
  [{ method: 'send' }, /"params"/],
  [{ method: 'dance', params: {} }, /no method "dance"/],
  [{ method: 'send', params: { to: 5 } }, /"to" is not text/],
  [{ method: 'send', params: { to: TO, id: 'A', text: '', file: 'x' } }, /"file"/],
  [{ method: 'download', params: { ref: 'x', limit: 1 } }, /"ref"/],
  [{ method: 'download', params: { ref: { kind: 'gif' }, limit: 1 } }, /"kind"/],
  [{ method: 'download', params: { ref: REF, limit: -1 } }, /"limit"/],
  [{ method: 'typing', params: { to: TO, on: 'yes' } }, /"on"/],
]

for (const [wrong, reason] of WRONG_REQUESTS) {
  test(`a wrong request costs itself only: ${JSON.stringify(wrong)}`, () => {
    const said = parseLine(JSON.stringify({ type: 'request', id: 5, ...wrong }))
    assert.equal(said.type, 'bad_request')
    assert.match(said.reason, reason)
    assert.equal(said.id, 5)
  })
}

const GARBAGE = ['', 'null', '[]', '{', '{"type":5}', '{"type":"ack","seq":"1"}', '{"type":"ack"}']
const MORE_GARBAGE = [
  '{"type":"ack","seq":1.5}',
  '{"type":"request","id":-1}',
  '{"type":"welcome"}',
]

for (const line of [...GARBAGE, ...MORE_GARBAGE]) {
  test(`garbage is an error: ${line}`, () => {
    assert.throws(() => parseLine(line), ProtocolError)
  })
}

test('lines are found however the bytes come', () => {
  const bytes = Buffer.from('{"a":"\u2603"}\n\n{"b":1}\nrest')
  const lines = new Lines()
  const found = [...bytes].flatMap((byte) => [...lines.feed(Buffer.of(byte))])
  assert.deepEqual(found, ['{"a":"\u2603"}\n', '\n', '{"b":1}\n'])
  assert.deepEqual([...new Lines().feed(bytes)], found)
})

test('a line that is too long or no UTF-8 is an error, after the good ones before it', () => {
  const heard: string[] = []
  const feed = (lines: Lines, bytes: Buffer): void => {
    for (const line of lines.feed(bytes)) heard.push(line)
  }
  const long = Buffer.concat([Buffer.from('1\n'), Buffer.alloc(MAX_LINE + 1, 'x')])
  assert.throws(() => {
    feed(new Lines(), long)
  }, ProtocolError)
  assert.throws(() => {
    feed(new Lines(), Buffer.from('2\n\xff\n', 'latin1'))
  }, ProtocolError)
  feed(new Lines(), Buffer.from('x'.repeat(MAX_LINE - 1) + '\n'))
  assert.deepEqual(
    heard.map((each) => each.length),
    [2, 2, MAX_LINE],
  )
})
