/**
 * Durable files: files that are replaced as a whole, and logs that are appended to.
 *
 * Invariant: when a function here has returned, what it did is on disk; when it has thrown, or the
 * process was killed inside, the file is as it was. All of it is synchronous: nothing else can
 * happen in between, and Baileys tells WhatsApp of new keys right after it told us. Files are 0600
 * and folders 0700, because they hold keys and messages.
 */

import { randomBytes } from 'node:crypto'
import * as fs from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Clock, Log } from './runtime.js'

const TEMPORARY = '.tmp'
const NEWLINE = 0x0a

/** A log is not rewritten before it has this many bytes and is so many times what it needs. */
const SMALL = 1024 * 1024
const FACTOR = 4

/**
 * Make the folder, close it to others, and remove what killed writers left in it. Nothing else may
 * be writing into it.
 */
export function privateFolder(folder: string): void {
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 })
  fs.chmodSync(folder, 0o700)
  for (const name of fs.readdirSync(folder)) {
    if (name.startsWith('.') && name.endsWith(TEMPORARY)) fs.unlinkSync(join(folder, name))
  }
}

/** Write a file as a whole: a temporary file, fsync, rename, fsync of the folder. */
export function writeWhole(path: string, content: string | Uint8Array): void {
  const random = randomBytes(6).toString('hex')
  const temporary = join(dirname(path), `.${basename(path)}.${random}${TEMPORARY}`)
  try {
    sync(temporary, 'wx', content)
    fs.renameSync(temporary, path)
  } catch (error) {
    fs.rmSync(temporary, { force: true })
    throw error
  }
  sync(dirname(path), 'r')
}

/** Rename a broken file or folder, for people to look at; returns its new path. */
export function setAside(path: string, why: string, clock: Clock): string {
  const stamp = new Date(clock.now()).toISOString().replaceAll(/[-:]|\.\d+/g, '')
  const aside = `${path}.${why}-${stamp}-${randomBytes(3).toString('hex')}`
  fs.renameSync(path, aside)
  sync(dirname(path), 'r')
  return aside
}

/** The file's content, null if there is no such file. */
export function contentOf(path: string): Buffer | null {
  try {
    return fs.readFileSync(path)
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
    throw error
  }
}

/** Open a file or folder, write to it what there is to write, and bring it to disk. */
function sync(path: string, flags: string, content?: string | Uint8Array): void {
  const file = fs.openSync(path, flags, 0o600)
  try {
    if (content !== undefined) fs.writeFileSync(file, content)
    fs.fsyncSync(file)
  } finally {
    fs.closeSync(file)
  }
}

/** What the lines of an `AppendLog` add up to. `T` is one record. */
export interface LogState<T> {
  /** Take one record in; must not fail. */
  apply(record: T): void
  /** Records that, applied to an empty state, give this one. */
  live(): Iterable<T>
  /** A record as a line without its newline. */
  encode(record: T): string
  /** Throws if the line is broken. */
  decode(line: string): T
}

/**
 * State kept as a file of lines: each change is appended; the state is what the lines add up to.
 *
 * Invariant: when `append` has returned, its record is on disk and applied; when it has thrown,
 * the record is not applied. The file stays in proportion to the state: once it is beyond 1 MiB and
 * four times as long as the state needs, it is rewritten from it.
 */
export class AppendLog<T> {
  /** Where to append; null while the file's content is uncertain: then it is rewritten first. */
  #file: number | null = null
  #size = 0
  /** Bytes that the state took when it was last measured. */
  #needed = 0

  /**
   * Open the log and apply all it holds.
   *
   * A last line that was torn by a crash is dropped: its append never returned. A broken line
   * before it means damage: the file is set aside and all that could be read is written again,
   * with one warning.
   */
  constructor(
    private readonly path: string,
    private readonly state: LogState<T>,
    clock: Clock,
    private readonly log: Log,
  ) {
    const content = contentOf(path) ?? Buffer.alloc(0)
    const { broken, whole } = this.#read(content)
    if (broken > 0) {
      const aside = setAside(path, 'corrupt', clock)
      log('warning', `${path} has ${broken} damaged line(s), and the original is in ${aside}`)
    } else if (whole < content.length) {
      log('info', `${path}: dropped the last line, which a crash had cut short`)
    }
    if (whole === 0 || broken > 0 || whole < content.length) this.#rewrite()
    else this.#openAt(whole)
  }

  /** Bring one record to disk, then apply it. */
  append(record: T): void {
    const line = Buffer.from(this.state.encode(record) + '\n')
    const file = this.#file ?? this.#rewrite()
    try {
      fs.appendFileSync(file, line)
      fs.fdatasyncSync(file)
    } catch (error) {
      // How much of the line is on disk is unknown.
      this.close()
      throw error
    }
    this.#size += line.length
    this.state.apply(record)
    if (this.#size > Math.max(SMALL, FACTOR * this.#needed)) this.renew()
  }

  /** Rewrite the file from the state, so that nothing else stays in it; never throws. */
  renew(): void {
    try {
      this.#rewrite()
    } catch (error) {
      this.log('warning', `${this.path} could not be rewritten: ${String(error)}`)
    }
  }

  /** Close the file. */
  close(): void {
    if (this.#file !== null) fs.closeSync(this.#file)
    this.#file = null
  }

  #rewrite(): number {
    this.close()
    const lines = Array.from(this.state.live(), (record) => this.state.encode(record) + '\n')
    const content = Buffer.from(lines.join(''))
    writeWhole(this.path, content)
    return this.#openAt(content.length)
  }

  #openAt(size: number): number {
    this.#file = fs.openSync(this.path, 'a', 0o600)
    this.#size = this.#needed = size
    return this.#file
  }

  /** Apply the good lines; `whole` is where the last one ends. A torn last line is not broken. */
  #read(content: Buffer): { readonly broken: number; readonly whole: number } {
    const text = new TextDecoder('utf-8', { fatal: true })
    let [start, bad, whole] = [0, 0, 0]
    for (let end = content.indexOf(NEWLINE); end >= 0; end = content.indexOf(NEWLINE, start)) {
      try {
        this.state.apply(this.state.decode(text.decode(content.subarray(start, end))))
        whole = end + 1
      } catch {
        // Whatever decoding makes of damage, the line is broken.
        bad += 1
      }
      start = end + 1
    }
    return { broken: whole < start ? bad - 1 : bad, whole }
  }
}
