/** How a device is linked with a code; `linked.ts` begins with the QR code. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LINKED } from './daemon.js'
import { at, unlinked } from './place.js'

test(
  'linking works with a code too',
  at(unlinked, async (place) => {
    place.fake.claimed = 500
    const daemon = await place.helper({ ...LINKED, pair: 'code', number: '15550001111' })
    const { code } = await daemon.until('pair_code')
    assert.match(code, /^[0-9A-Z]{4}-[0-9A-Z]{4}$/)
    await place.fake.until('code_requested')
    await place.fake.enterCode(code)
    await daemon.state('open')
  }),
)
