/**
 * Lets things go wrong in the process it is loaded into, on the way of a message:
 * `NANOBOT_FAULT='<fault> …' node --import ./faults.mjs main.js`.
 *
 * These kill the process, for real; in the order of the points: `die-before-spool` (the message is
 * written, but not under its name), `die-after-spool` (it is there, the keys that were used for it
 * are not), `die-after-keys` (both are, and WhatsApp has not heard of it), `die-before-forget` (the
 * daemon has it, and it is still in the spool). In these the disk refuses once: `spool-full` (the
 * message), `keys-fail` (the keys, after the message).
 */

import fs from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { basename } from 'node:path'

const SPOOLED = /^\d{12}\.json$/
const KEYS = 'keys.jsonl'

const real = { open: fs.open, rename: fs.rename, unlink: fs.unlink }
const faults = new Set(process.env.NANOBOT_FAULT.split(' '))
let spooled = false

function mayDie(point) {
  if (faults.has(`die-${point}`)) process.kill(process.pid, 'SIGKILL')
}

function mayFail(name, code) {
  if (!faults.delete(name)) return
  throw Object.assign(new Error(`${code}: the disk refuses`), { code })
}

fs.rename = async (from, to) => {
  const ours = SPOOLED.test(basename(to))
  if (ours) {
    mayDie('before-spool')
    mayFail('spool-full', 'ENOSPC')
  }
  await real.rename(from, to)
  if (!ours) return
  spooled = true
  mayDie('after-spool')
}

fs.unlink = async (path) => {
  if (SPOOLED.test(basename(path))) mayDie('before-forget')
  await real.unlink(path)
}

fs.open = async (path, ...rest) => {
  const handle = await real.open(path, ...rest)
  if (basename(String(path)) !== KEYS) return handle
  const sync = handle.datasync.bind(handle)
  handle.datasync = async () => {
    if (spooled) mayFail('keys-fail', 'EIO')
    await sync()
    if (spooled) mayDie('after-keys')
  }
  return handle
}

syncBuiltinESMExports()
