/** What goes wrong around the whole helper, and that it costs no message. */

import assert from 'node:assert/strict'
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { LINKED, type Daemon } from './daemon.js'
import { linked, type Place } from './place.js'

// What takes time here is starting helpers, so that tests go on with what the last one has left.
describe('trouble', { concurrency: 2 }, () => {
  describe('of the process and its files', { concurrency: 1 }, () => {
    let place: Place
    let daemon: Daemon

    before(async () => {
      place = await linked()
    })

    after(() => closed(place))

    test('killed at any point on the way of a message, it loses none', async () => {
      const { fake } = place
      const points = ['die-before-spool', 'die-after-spool', 'die-after-keys', 'die-before-forget']
      const heard: string[] = []
      for (const point of points) {
        const dying = await place.helper(LINKED, point)
        await fake.say({ from: 'ann', text: point, id: point })
        assert.equal(await dying.exited(), 'SIGKILL')
        heard.push(...dying.messages.map((event) => event.text))
      }
      daemon = await place.helper()
      await fake.say({ from: 'ann', text: 'last', id: 'last' })
      await daemon.message('last')
      heard.push(...daemon.messages.map((event) => event.text))
      assert.deepEqual([...new Set(heard)], [...points, 'last'])
      await fake.until('confirmed', ({ id }) => id === 'last')
      assert.deepEqual(fake.desk.mailbox.ids, [])
    })

    test('damaged keys and credentials cost no message', async () => {
      const auth = join(place.folder, 'auth')
      assert.equal(await daemon.stop(), 0)
      await writeFile(join(auth, 'keys.jsonl'), '\0\0\0\0\n'.repeat(3))
      await writeFile(join(auth, 'creds.json'), '{"noiseKey":')

      const again = await place.helper()
      await again.state('open')
      await place.fake.say({ from: 'ann', text: 'after', id: 'A2' })
      assert.equal((await again.message('A2')).text, 'after')
      const names = await readdir(auth)
      assert.ok(names.some((name) => name.startsWith('creds.json.corrupt-')))
      assert.ok(names.some((name) => name.startsWith('keys.jsonl.corrupt-')))
    })
  })

  describe('of the disk and of the link', { concurrency: 1 }, () => {
    let place: Place
    let daemon: Daemon

    before(async () => {
      place = await linked()
      daemon = await place.helper(LINKED, 'spool-full keys-fail')
      await daemon.state('open')
    })

    after(() => closed(place))

    test('a disk that refuses a message or its keys loses none', async () => {
      const { fake } = place
      for (const id of ['P1', 'P2', 'P3']) {
        await fake.say({ from: 'ann', text: id, id })
        assert.equal((await daemon.message(id)).text, id)
        await fake.until('confirmed', (event) => event.id === id)
      }
      const failures = daemon.said.filter(
        (said) => said.type === 'state' && said.state === 'backoff',
      )
      assert.equal(failures.length, 2)
      assert.deepEqual(fake.desk.mailbox.ids, [])
    })

    test('somebody else takes the link: it gives way for minutes', async () => {
      place.fake.streamError(440)
      const { retry_in } = await daemon.state('replaced')
      assert.ok(Number(retry_in) > 200)
    })
  })
})

async function closed(place: Place): Promise<void> {
  await place.close()
  assert.deepEqual(place.fake.violations, [])
}
