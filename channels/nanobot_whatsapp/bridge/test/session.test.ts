/** What follows from the end of a connection, by table. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Backoff, type Verdict, verdictOn } from '../src/session.js'

const ENDS: readonly (readonly [number, Verdict])[] = [
  [401, { next: 'logged_out', wait: null }],
  [402, { next: 'banned', wait: 60 }],
  [403, { next: 'banned', wait: 60 }],
  [405, { next: 'newer_version', wait: null }],
  [406, { next: 'banned', wait: 60 }],
  [408, { next: 'backoff', wait: null }],
  [428, { next: 'backoff', wait: null }],
  [440, { next: 'replaced', wait: 300 }],
  [500, { next: 'backoff', wait: null }],
  [503, { next: 'backoff', wait: null }],
  [515, { next: 'at_once', wait: null }],
  [0, { next: 'backoff', wait: null }],
]

for (const [code, verdict] of ENDS) {
  test(`after ${code} comes ${verdict.next}`, () => {
    assert.deepEqual(verdictOn({ code, words: '', expire: 60, disk: false }), verdict)
  })
}

test('a ban without an end is final', () => {
  const verdict = verdictOn({ code: 403, words: '', expire: 0, disk: false })
  assert.deepEqual(verdict, { next: 'banned', wait: null })
})

test('a disk that refuses is waited for, whatever WhatsApp says', () => {
  assert.equal(verdictOn({ code: 401, words: '', expire: 0, disk: true }).next, 'backoff')
})

test('waiting grows from a second to five minutes, and starts over after a good connection', () => {
  const backoff = new Backoff(() => 1)
  const waits = Array.from({ length: 11 }, () => backoff.next(1000))
  assert.deepEqual(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])
  assert.equal(backoff.next(60_000), 1)
  assert.equal(new Backoff(() => 0).next(0), 0.5)
})
