/**
 * The fake as a process of its own: commands on stdin, answers and events on stdout, one JSON
 * object per line. It ends when stdin does.
 */

import { createInterface } from 'node:readline'

import { COMMANDS } from './commands.mjs'
import { hush } from './silent.mjs'
import { FakeWhatsApp } from './whatsapp.mjs'

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

async function obey(fake, line) {
  let id = null
  try {
    const { id: given, do: name, ...fields } = JSON.parse(line)
    id = given
    const command = COMMANDS[name]
    if (!command) throw new Error(`no such command: ${name}`)
    say({ id, ok: true, ...(await command(fake, fields)) })
  } catch (error) {
    say({ id, ok: false, error: error.message })
  }
}

hush()
const fake = await FakeWhatsApp.start()
fake.onEvent(say)
const { me } = fake.people
say({ event: 'ready', trust: fake.trust, number: me.number, lid: me.lid })
const lines = createInterface({ input: process.stdin })
lines.on('line', (line) => obey(fake, line))
lines.on('close', () => process.exit(0))
