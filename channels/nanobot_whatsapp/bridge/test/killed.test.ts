/** A process that is killed while it writes, at moments that nobody chose. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test, type TestContext } from 'node:test'
import { AppendLog } from '../src/disk.js'
import { Spool } from '../src/spool.js'
import { FakeClock, message, recordedLog, temporaryFolder } from './parts.js'

const DIST = new URL('../dist/', import.meta.url).href

/** Writes for ever, and prints each name once it was told that it is on disk. */
const WRITER = `
  import { Spool } from '${DIST}spool.js'
  import { AppendLog } from '${DIST}disk.js'
  const [folder, round, event] = [process.argv[1], process.argv[2], JSON.parse(process.argv[3])]
  const clock = { now: () => 0, after: () => () => {} }
  const words = () => {}
  const { stringify: encode, parse: decode } = JSON
  const seen = []
  const state = { apply: (name) => seen.push(name), live: () => seen, encode, decode }
  const spool = new Spool(folder + '/spool', clock, words)
  const log = new AppendLog(folder + '/keys.jsonl', state, clock, words)
  for (let i = 0; ; i++) {
    const name = round + '-' + i
    spool.put({ ...event, id: name })
    log.append(name)
    console.log(name)
  }
`

async function writeUntilKilled(t: TestContext, folder: string, round: number): Promise<string[]> {
  const args = [
    '--input-type=module',
    '-e',
    WRITER,
    folder,
    `${round}`,
    JSON.stringify(message('')),
  ]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  const told: string[] = []
  for await (const name of createInterface({ input: child.stdout })) {
    told.push(name)
    if (told.length === 7 * round) child.kill('SIGKILL')
  }
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  return told
}

test('whatever a killed process was told to be on disk is there', async (t) => {
  const folder = await temporaryFolder(t)
  const told: string[] = []
  for (const round of [1, 2, 3]) told.push(...(await writeUntilKilled(t, folder, round)))
  assert.ok(told.length >= 42)

  const { log: words, lines } = recordedLog()
  const spool = new Spool(join(folder, 'spool'), new FakeClock(), words)
  const kept: string[] = []
  for (let next = spool.after(0); next !== null; next = spool.after(next.seq)) {
    kept.push(next.event.id)
  }
  const appended: string[] = []
  const state = {
    apply: (name: string) => appended.push(name),
    live: () => appended,
    encode: JSON.stringify,
    decode: (line: string) => String(JSON.parse(line)),
  }
  const log = new AppendLog(join(folder, 'keys.jsonl'), state, new FakeClock(), words)
  log.close()
  for (const found of [kept, appended]) {
    assert.deepEqual(
      found.filter((name) => told.includes(name)),
      told,
    )
    // At most the one that each round had in hand.
    assert.ok(found.length <= told.length + 3)
  }
  assert.deepEqual(
    lines.filter((line) => line.startsWith('warning')),
    [],
  )
})
