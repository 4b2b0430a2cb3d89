import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MAX_LINE } from '../src/protocol.js'
import { fitted } from '../src/spool.js'
import { message } from './parts.js'

const media = { kind: 'image', mime: 'image/png', name: 'a.png', size: 3 } as const

test('an event of a usual size is left alone', () => {
  const event = message('A', { text: 'x'.repeat(60_000), media: { ...media, ref: { url: 'u' } } })
  assert.equal(fitted(event), event)
})

for (const worst of ['\0', '\u2603', '\ud83d']) {
  test(`an event fits a line however much of ${JSON.stringify(worst)} is in it`, () => {
    const huge = worst.repeat(66_000)
    const event = message(huge, {
      chat: huge,
      sender: huge,
      alt: huge,
      name: huge,
      title: huge,
      text: huge,
      mentions: Array.from({ length: 200 }, () => worst.repeat(300)),
      quote: { id: huge, sender: huge, text: huge, ours: false },
      media: { ...media, mime: huge, name: huge, ref: { key: worst.repeat(8000), size: 3 } },
      notes: Array.from({ length: 9 }, () => huge),
      edits: huge,
      unknown: huge,
    })
    const cut = fitted(event)
    const line = JSON.stringify({ type: 'event', seq: Number.MAX_SAFE_INTEGER, event: cut })
    assert.ok(Buffer.byteLength(line) < MAX_LINE, `${Buffer.byteLength(line)}`)
    assert.equal(cut.text.length, 65_536)
    assert.match(cut.notes.at(-1) ?? '', /cut off/)
    assert.deepEqual(fitted(event), cut)
  })
}

test('a file whose description is absurdly long becomes a note', () => {
  const event = message('A', { media: { ...media, ref: { url: 'x'.repeat(MAX_LINE) } } })
  const { media: none, notes } = fitted(event)
  assert.equal(none, null)
  assert.match(notes.join(), /cannot be fetched|too long to be fetched/)
})
