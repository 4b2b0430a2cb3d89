/** The real program, built, as the daemon starts it; without WhatsApp. */

import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { mkdir, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../src/runtime.js'
import { Spool } from '../src/spool.js'
import { Daemon, WELCOME } from './listener.js'
import { message, recordedLog, temporaryFolder } from './parts.js'

const MAIN = fileURLToPath(new URL('../dist/main.js', import.meta.url))

interface Program {
  readonly process: ChildProcess
  /** All that it printed, by stream. */
  readonly out: () => string
  readonly err: () => string
  readonly code: Promise<number | null>
}

function start(t: TestContext, args: readonly string[], cwd?: string): Program {
  const child = spawn(process.execPath, [MAIN, ...args], { cwd, stdio: 'pipe' })
  t.after(() => child.kill('SIGKILL'))
  let [out, err] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()))
  const code = once(child, 'close').then(() => child.exitCode)
  return { process: child, out: () => out, err: () => err, code }
}

/** Started as the daemon does it: in the folder, with short names, so that length is no matter. */
async function linked(t: TestContext): Promise<{ folder: string; daemon: Daemon; it: Program }> {
  const folder = await temporaryFolder(t)
  const daemon = await Daemon.listen(t, join(folder, 'bridge.sock'))
  const { log } = recordedLog()
  new Spool(join(folder, 'spool'), systemClock, log).put(message('A'))
  const it = start(t, ['--socket', 'bridge.sock', '--folder', '.'], folder)
  return { folder, daemon, it }
}

/** The event that waits and the state that stays, in whichever order they come. */
async function whatFollows(daemon: Daemon): Promise<readonly unknown[]> {
  let [event, state]: unknown[] = []
  while (event === undefined || state === undefined || state === 'connecting') {
    const line = await daemon.next()
    event = line['event'] ?? event
    state = line['state'] ?? state
  }
  return [event, state]
}

function listeningInodes(pid: number | undefined): readonly string[] {
  const tables = ['tcp', 'tcp6', 'udp', 'udp6'].map((name) =>
    readFileSync(`/proc/${pid}/net/${name}`, 'utf8'),
  )
  const open = readdirSync(`/proc/${pid}/fd`).map((fd) => linkOf(`/proc/${pid}/fd/${fd}`))
  const rows = tables.flatMap((table) => table.trim().split('\n').slice(1))
  const inodes = rows.map((row) => row.trim().split(/\s+/)[9])
  return inodes.filter((inode) => open.includes(`socket:[${inode}]`)).map(String)
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

test('it says hello and how it is, sends what waits, and ends with the daemon', async (t) => {
  const { folder, daemon, it } = await linked(t)
  const hello = await daemon.next()
  assert.deepEqual([hello['type'], hello['protocol']], ['hello', 1])
  assert.deepEqual([hello['bridge'], hello['baileys']], ['0.1.0', '7.0.0-rc14'])
  assert.deepEqual([hello['node'], hello['pid']], [process.version, it.process.pid])
  daemon.say(WELCOME)
  assert.deepEqual(await whatFollows(daemon), [message('A'), 'need_pairing'])
  assert.deepEqual(listeningInodes(it.process.pid), [])
  assert.equal((await stat(folder)).mode & 0o777, 0o700)
  daemon.close()
  assert.equal(await it.code, 0)
  assert.equal(it.out(), '')
  assert.deepEqual(await readdir(join(folder, 'spool')), ['000000000001.json'])
})

test('a signal ends it in good order', async (t) => {
  const { daemon, it } = await linked(t)
  await daemon.next('hello')
  it.process.kill('SIGTERM')
  assert.equal(await it.code, 0)
  await daemon.closed
})

test('nonsense from the daemon ends it with a reason', async (t) => {
  const { daemon, it } = await linked(t)
  await daemon.next('hello')
  daemon.write('GET / HTTP/1.1\n')
  assert.equal(await it.code, 65)
  assert.match(it.err(), /error: a line is not JSON/)
})

test('without a daemon it ends at once and says so', async (t) => {
  const it = start(t, ['--socket', 'none.sock', '--folder', '.'], await temporaryFolder(t))
  assert.equal(await it.code, 69)
  assert.match(it.err(), /ENOENT/)
})

test('wrong arguments are answered with the right ones', async (t) => {
  const it = start(t, ['--socket'])
  assert.equal(await it.code, 64)
  assert.match(it.err(), /usage/)
})

test('what nobody foresaw ends it with 70 and is told', async (t) => {
  const folder = await temporaryFolder(t)
  await mkdir(join(folder, 'spool', '000000000001.json'), { recursive: true })
  const it = start(t, ['--socket', 'none.sock', '--folder', folder])
  assert.equal(await it.code, 70)
  assert.match(it.err(), /the helper failed: .*EISDIR/)
})
