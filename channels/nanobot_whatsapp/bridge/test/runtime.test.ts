import assert from 'node:assert/strict'
import { test } from 'node:test'
import { baileysLogger, quietConsole } from '../src/runtime.js'
import { recordedLog } from './parts.js'

test('of what Baileys logs only its sentence and the reason of an error are passed on', () => {
  const { log, lines } = recordedLog()
  const logger = baileysLogger(log)
  const secret = { key: 'SECRET', message: { conversation: 'SECRET' } }
  logger.error({ ...secret, err: new Error('Bad MAC') }, 'failed to decrypt')
  logger.child({ class: 'SECRET' }).warn(secret)
  logger.info('connected')
  logger.debug(secret, 'SECRET')
  assert.deepEqual(lines, [
    'debug: baileys: failed to decrypt: Bad MAC',
    'debug: baileys: (no words)',
    'debug: baileys: connected',
  ])
})

test('what libraries print keeps its sentence only and does not reach the terminal', (t) => {
  const { log, lines } = recordedLog()
  const before = { ...globalThis.console }
  t.after(() => Object.assign(globalThis.console, before))
  quietConsole(log)
  globalThis.console.info('Closing session:', { privKey: 'SECRET' })
  globalThis.console.log({ privKey: 'SECRET' })
  assert.deepEqual(lines, ['debug: console: Closing session:', 'debug: console: (no words)'])
})
