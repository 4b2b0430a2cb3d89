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

import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { basename } from 'node:path'

const SPOOLED = /^\d{12}\.json$/
const KEYS = 'keys.jsonl'

const real = { ...fs }
const faults = new Set(process.env.NANOBOT_FAULT.split(' '))
let spooled = false
let keys = -1

function mayDie(point) {
  if (faults.has(`die-${point}`)) process.kill(process.pid, 'SIGKILL')
}

function mayFail(name, code) {
  if (!faults.delete(name)) return
  throw Object.assign(new Error(`${code}: the disk refuses`), { code })
}

fs.renameSync = (from, to) => {
  const ours = SPOOLED.test(basename(to))
  if (ours) {
    mayDie('before-spool')
    mayFail('spool-full', 'ENOSPC')
  }
  real.renameSync(from, to)
  if (!ours) return
  spooled = true
  mayDie('after-spool')
}

fs.unlinkSync = (path) => {
  if (SPOOLED.test(basename(path))) mayDie('before-forget')
  real.unlinkSync(path)
}

fs.openSync = (path, ...rest) => {
  const file = real.openSync(path, ...rest)
  if (basename(String(path)) === KEYS) keys = file
  return file
}

fs.fdatasyncSync = (file) => {
  if (spooled && file === keys) mayFail('keys-fail', 'EIO')
  real.fdatasyncSync(file)
  if (spooled && file === keys) mayDie('after-keys')
}

syncBuiltinESMExports()
