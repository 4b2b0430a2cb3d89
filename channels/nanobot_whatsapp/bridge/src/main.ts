/**
 * The helper: `node dist/main.js --socket PATH --folder PATH`.
 *
 * It connects to the daemon's Unix socket, serves it with one WhatsApp account, whose files are in
 * the folder, and ends with the connection; it opens no port and never outlives the daemon.
 *
 * Exit codes: 0 when the daemon has closed the connection or a signal came, 64 for wrong arguments,
 * 65 for a malformed line from the daemon, 69 if it cannot be reached, 70 for a fault of the
 * helper's own, 74 if it cannot go on, for instance because of the disk.
 */

import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { privateFolder } from './disk.js'
import { type Ending, Link } from './link.js'
import type { Hello } from './protocol.js'
import { type Log, quietConsole, stderrLog, systemClock } from './runtime.js'
import { Spool } from './spool.js'

/** Characters of the longest line of the log. */
const LONGEST_LINE = 2000

const EXIT: Readonly<Record<Ending['how'], number>> = {
  closed: 0,
  goodbye: 0,
  asked: 0,
  garbage: 65,
  unreachable: 69,
  broken: 74,
}

async function main(socket: string, folder: string): Promise<number> {
  let link: Link | null = null
  const log: Log = (level, message) => {
    const line = message.slice(0, LONGEST_LINE)
    if (link?.log(level, line) !== true) stderrLog(level, line)
  }
  dieOfSurprises()
  quietConsole(log)
  privateFolder(folder)
  const spool = new Spool(join(folder, 'spool'), systemClock, log)
  // Baileys takes most of a second to load, and wrong arguments need none of it.
  const { WhatsAppSession } = await import('./session.js')
  const clock = systemClock
  const daemon: Link = new Link({
    socket,
    hello: about(),
    spool,
    clock,
    begin: (welcome) => new WhatsAppSession({ folder, spool, link: daemon, log, clock, welcome }),
  })
  link = daemon
  for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    process.on(name, () => {
      daemon.end({ how: 'asked', reason: name })
    })
  }
  const ending = await daemon.run()
  if (EXIT[ending.how] !== 0 || ending.how === 'goodbye') log('error', ending.reason)
  // Work in progress can be interrupted anywhere, as by a kill.
  return EXIT[ending.how]
}

/** After an unexpected error the helper ends: a new one starts from what is on disk. */
function dieOfSurprises(): void {
  const die = (error: unknown): void => {
    const words = error instanceof Error ? (error.stack ?? error.message) : String(error)
    stderrLog('error', `the helper failed: ${words}`)
    process.exit(70)
  }
  process.on('uncaughtException', die)
  process.on('unhandledRejection', die)
}

function about(): Hello {
  const load = createRequire(import.meta.url)
  const version = (file: string): string => (load(file) as { readonly version: string }).version
  return {
    bridge: version('../package.json'),
    baileys: version('baileys/package.json'),
    node: process.version,
    pid: process.pid,
  }
}

/** The socket and the folder, or null. */
function readArguments(): readonly [string, string] | null {
  try {
    const options = { socket: { type: 'string' }, folder: { type: 'string' } } as const
    const { socket, folder } = parseArgs({ options }).values
    return socket === undefined || folder === undefined ? null : [socket, resolve(folder)]
  } catch {
    return null
  }
}

const given = readArguments()
if (given === null) {
  stderrLog('error', 'usage: node main.js --socket PATH --folder PATH')
  process.exit(64)
}
process.umask(0o077)
process.exit(await main(...given))
