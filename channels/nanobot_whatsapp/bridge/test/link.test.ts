import assert from 'node:assert/strict'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { RequestFailed } from '../src/errors.js'
import { type Ending, Link, type Session } from '../src/link.js'
import {
  MAX_LINE,
  type ReplyData,
  type Request,
  type StateReport,
  type Welcome,
  WINDOW,
} from '../src/protocol.js'
import { Spool } from '../src/spool.js'
import { Daemon, WELCOME } from './listener.js'
import { FakeClock, message, recordedLog, temporaryFolder } from './parts.js'

const TO = '15550001111@s.whatsapp.net'
const CONNECTING: StateReport = {
  state: 'connecting',
  detail: '',
  retry_in: null,
  me: { number: TO, lid: '999@lid', name: 'Ada' },
}

/** A session that does what a test says. */
class ScriptedSession implements Session {
  readonly welcomes: Welcome[] = []
  readonly requests: Request[] = []
  started: () => void = () => undefined
  answer: () => Promise<ReplyData> = () => Promise.resolve({})

  begin(welcome: Welcome): this {
    this.welcomes.push(welcome)
    this.started()
    return this
  }

  request(request: Request): Promise<ReplyData> {
    this.requests.push(request)
    return this.answer()
  }
}

interface Running {
  readonly daemon: Daemon
  readonly link: Link
  readonly session: ScriptedSession
  readonly spool: Spool
  readonly clock: FakeClock
  readonly ending: Promise<Ending>
}

async function running(t: TestContext, waiting: readonly string[] = []): Promise<Running> {
  const folder = await temporaryFolder(t)
  const daemon = await Daemon.listen(t, join(folder, 'bridge.sock'))
  const clock = new FakeClock()
  const { log } = recordedLog()
  const spool = new Spool(join(folder, 'spool'), clock, log)
  for (const id of waiting) spool.put(message(id))
  const hello = { bridge: '0.1.0', baileys: '7', node: 'v20', pid: 1 }
  const session = new ScriptedSession()
  const begin = (welcome: Welcome): Session => session.begin(welcome)
  const link = new Link({ socket: join(folder, 'bridge.sock'), hello, spool, clock, begin })
  session.started = () => {
    link.report({ type: 'state', ...CONNECTING })
  }
  const ending = link.run()
  t.after(() => {
    link.end({ how: 'asked', reason: 'the test is over' })
  })
  return { daemon, link, session, spool, clock, ending }
}

async function welcomed(t: TestContext, waiting: readonly string[] = []): Promise<Running> {
  const parts = await running(t, waiting)
  await parts.daemon.next('hello')
  parts.daemon.say(WELCOME)
  await parts.daemon.next('state')
  return parts
}

function send(id: number): object {
  return { type: 'request', id, method: 'send', params: { to: TO, id: `M${id}`, text: 'hi' } }
}

test('hello comes first, and nothing else before the welcome', async (t) => {
  const { daemon, link, session } = await running(t, ['A'])
  link.log('info', 'too early')
  const hello = { type: 'hello', protocol: 1, bridge: '0.1.0', baileys: '7', node: 'v20', pid: 1 }
  assert.deepEqual(await daemon.next(), hello)
  daemon.say({ type: 'ping', id: 1 })
  assert.deepEqual(await daemon.next(), { type: 'pong', id: 1 })
  daemon.say({ ...WELCOME, pair: 'qr', future: true })
  assert.equal((await daemon.next())['state'], 'connecting')
  assert.equal((await daemon.next('event'))['seq'], 1)
  assert.equal(session.welcomes[0]?.pair, 'qr')
})

test('what the session says reaches the daemon', async (t) => {
  const { daemon, link } = await welcomed(t)
  link.report({ type: 'state', ...CONNECTING, state: 'open' })
  assert.deepEqual(await daemon.next(), { type: 'state', ...CONNECTING, state: 'open' })
  link.report({ type: 'qr', data: '2@abc' })
  assert.deepEqual(await daemon.next(), { type: 'qr', data: '2@abc' })
  link.report({ type: 'pair_code', code: 'ABCD-EFGH' })
  assert.deepEqual(await daemon.next(), { type: 'pair_code', code: 'ABCD-EFGH' })
  link.report({ type: 'identity', lid: '888@lid', number: TO })
  assert.deepEqual(await daemon.next(), { type: 'identity', lid: '888@lid', number: TO })
  assert.ok(link.log('warning', 'careful'))
  assert.deepEqual(await daemon.next(), { type: 'log', level: 'warning', message: 'careful' })
})

test('events are sent in order and leave the spool when they are confirmed', async (t) => {
  const { daemon, spool } = await welcomed(t, ['A', 'B'])
  assert.deepEqual(await daemon.next('event'), { type: 'event', seq: 1, event: message('A') })
  assert.equal((await daemon.next('event'))['seq'], 2)
  spool.put(message('C'))
  assert.equal((await daemon.next('event'))['seq'], 3)
  assert.equal(spool.size, 3)
  daemon.say({ type: 'ack', seq: 2 })
  await daemon.echo()
  assert.equal(spool.size, 1)
})

test('no event is sent before it is said whose account this is', async (t) => {
  const { daemon, session, link } = await running(t, ['A'])
  session.started = () => {
    link.report({ type: 'state', ...CONNECTING, me: null })
  }
  await daemon.next('hello')
  daemon.say(WELCOME)
  assert.equal((await daemon.next())['me'], null)
  link.report({ type: 'state', ...CONNECTING, state: 'backoff', me: null })
  assert.equal((await daemon.next())['state'], 'backoff')
  assert.equal(await daemon.echo(), 0)
  link.report({ type: 'state', ...CONNECTING, state: 'need_pairing', me: null })
  assert.equal((await daemon.next())['state'], 'need_pairing')
  assert.equal((await daemon.next())['seq'], 1, 'nobody is linked who could be said to be it')
})

test('no more events are on the wire than the window holds', async (t) => {
  const ids = Array.from({ length: WINDOW + 2 }, (_, i) => `M${i}`)
  const { daemon } = await welcomed(t, ids)
  for (let seq = 1; seq <= WINDOW; seq++) assert.equal((await daemon.next('event'))['seq'], seq)
  assert.equal(await daemon.echo(), 0)
  daemon.say({ type: 'ack', seq: 1 })
  assert.equal((await daemon.next('event'))['seq'], WINDOW + 1)
  assert.equal(await daemon.echo(), 0)
})

test('a confirmation of what was never sent drops nothing that was not', async (t) => {
  const { daemon, spool } = await welcomed(t)
  spool.put(message('A'))
  await daemon.next('event')
  daemon.say({ type: 'ack', seq: 99 })
  await daemon.echo()
  spool.put(message('B'))
  assert.equal((await daemon.next('event'))['seq'], 2)
})

test('each request gets one reply: data, an error in words, or a fault', async (t) => {
  const { daemon, session } = await welcomed(t)
  session.answer = () => Promise.resolve({ id: 'M1', at: 1 })
  daemon.say(send(1))
  assert.deepEqual(await daemon.next('reply'), {
    type: 'reply',
    id: 1,
    ok: true,
    data: { id: 'M1', at: 1 },
  })
  session.answer = () => Promise.reject(new RequestFailed('later', 'not connected', 5))
  daemon.say(send(2))
  const later = { code: 'later', message: 'not connected', retry_after: 5 }
  assert.deepEqual((await daemon.next('reply'))['error'], later)
  session.answer = () => Promise.reject(new TypeError('oops'))
  daemon.say(send(3))
  const unknown = { code: 'unknown', message: 'send failed: TypeError: oops' }
  assert.deepEqual((await daemon.next('reply'))['error'], unknown)
  daemon.say({ type: 'request', id: 4, method: 'dance', params: {} })
  const refused = { code: 'refused', message: 'there is no method "dance"' }
  assert.deepEqual((await daemon.next('reply'))['error'], refused)
  assert.equal(session.requests.length, 3)
})

test('requests do not wait for each other, and too many at once are put off', async (t) => {
  const { daemon, session } = await welcomed(t)
  let release: (data: ReplyData) => void = () => undefined
  session.answer = () =>
    new Promise((resolve) => {
      release = resolve
    })
  for (let id = 1; id <= 65; id++) daemon.say(send(id))
  const put = await daemon.next('reply')
  assert.deepEqual([put['id'], put['ok'], session.requests.length], [65, false, 64])
  release({ id: 'M64' })
  assert.equal((await daemon.next('reply'))['id'], 64)
})

test('something unknown is passed over', async (t) => {
  const { daemon } = await welcomed(t)
  daemon.say({ type: 'dance' })
  const message = 'unknown message from the daemon: dance'
  assert.deepEqual(await daemon.next(), { type: 'log', level: 'debug', message })
})

for (const line of ['garbage\n', '{"type":"ack"}\n', 'x'.repeat(MAX_LINE + 1)]) {
  test(`garbage ends the connection: ${line.slice(0, 15).trim()}`, async (t) => {
    const { daemon, ending, spool } = await welcomed(t, ['A'])
    daemon.write(line)
    assert.equal((await ending).how, 'garbage')
    await daemon.closed
    assert.equal(spool.size, 1)
  })
}

test('a daemon of another version, or one that says goodbye, is left', async (t) => {
  const first = await running(t)
  await first.daemon.next('hello')
  first.daemon.say({ ...WELCOME, protocol: 2 })
  assert.match((await first.ending).reason, /speaks protocol 2/)
  const second = await running(t)
  await second.daemon.next('hello')
  second.daemon.say({ type: 'goodbye', reason: 'too old' })
  assert.deepEqual(await second.ending, { how: 'goodbye', reason: 'too old' })
})

test('when the daemon closes the connection, what it did not confirm stays', async (t) => {
  const { daemon, ending, spool, link } = await welcomed(t, ['A'])
  await daemon.next('event')
  daemon.close()
  assert.equal((await ending).how, 'closed')
  assert.equal(spool.size, 1)
  assert.equal(link.log('info', 'nobody there'), false)
})

test('a daemon that does not say welcome in time is left', async (t) => {
  const { daemon, ending, clock } = await running(t)
  await daemon.next('hello')
  clock.advance(10_000)
  assert.equal((await ending).how, 'broken')
})

test('a daemon that cannot be reached is said to be so', async (t) => {
  const folder = await temporaryFolder(t)
  const { log } = recordedLog()
  const spool = new Spool(join(folder, 'spool'), new FakeClock(), log)
  const hello = { bridge: '0.1.0', baileys: '7', node: 'v20', pid: 1 }
  const socket = join(folder, 'none.sock')
  const begin = (): Session => new ScriptedSession()
  const link = new Link({ socket, hello, spool, clock: new FakeClock(), begin })
  assert.equal((await link.run()).how, 'unreachable')
  await assert.rejects(stat(socket))
})

test('log lines are dropped and events wait while the daemon does not read', async (t) => {
  const text = 'x'.repeat(60_000)
  const { daemon, link, spool } = await welcomed(t)
  daemon.pause()
  for (let i = 0; i < 40; i++) spool.put(message(`M${i}`, { text }))
  for (let i = 0; i < 10_000; i++) link.log('info', 'x'.repeat(1000))
  daemon.resume()
  for (let seq = 1; seq <= 40; seq++) assert.equal((await daemon.next('event'))['seq'], seq)
  assert.ok(daemon.seen('log') < 2000)
})

test('a daemon that never reads what it must get is given up', async (t) => {
  const { daemon, link, ending } = await welcomed(t)
  daemon.pause()
  for (let i = 0; i < 20; i++) link.report({ type: 'qr', data: 'x'.repeat(1_000_000) })
  assert.deepEqual((await ending).how, 'broken')
})
