/** Durable files: those that are written as a whole, and those that only grow. */

import { randomBytes } from 'node:crypto'
import {
  chmod,
  type FileHandle,
  link,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  unlink,
} from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import type { Clock, Log } from './runtime.js'

/*
 * Files that are whole or not there, whatever happens while they are written.
 *
 * What always holds: when `writeWhole` has resolved, the content is on disk under its name; when it
 * has rejected, or the process was killed inside, the file is as it was. Files are 0600 and folders
 * 0700, because they hold keys and messages.
 */

const TEMPORARY = '.tmp'

/** Make the folder, if need be with those above it, and close it to others. */
export async function privateFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await chmod(folder, 0o700)
}

/**
 * Write a file as a whole: a temporary file, fsync, rename, fsync of the folder.
 *
 * With `keep`, what was there before stays under that path; there is no moment without the file.
 */
export async function writeWhole(
  path: string,
  content: string | Uint8Array,
  keep?: string,
): Promise<void> {
  const temporary = temporaryFor(path)
  try {
    await writeSynced(temporary, content)
    if (keep !== undefined) await keepAs(path, keep)
    await rename(temporary, path)
  } catch (error) {
    await removeIfThere(temporary)
    throw error
  }
  await syncFolder(dirname(path))
}

/** Make what happened to the names in a folder last. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Give a broken file or folder another name, for people to look at; returns that name's path. */
export async function setAside(path: string, why: string, now: number): Promise<string> {
  const stamp = new Date(now).toISOString().replaceAll(/[-:]|\.\d+/g, '')
  const aside = `${path}.${why}-${stamp}-${randomBytes(3).toString('hex')}`
  await rename(path, aside)
  await syncFolder(dirname(path))
  return aside
}

/** Remove what killed writers left in a folder. Nobody may be writing into it. */
export async function sweep(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name.startsWith('.') && name.endsWith(TEMPORARY)) await removeIfThere(join(folder, name))
  }
}

/** Remove a file; that there is none is fine. */
export async function removeIfThere(path: string): Promise<void> {
  try {
    await unlink(path)
  } catch (error) {
    if (!isMissing(error)) throw error
  }
}

/** Whether a file operation failed because there is no such file. */
export function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}

function temporaryFor(path: string): string {
  return join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}${TEMPORARY}`)
}

async function writeSynced(path: string, content: string | Uint8Array): Promise<void> {
  const handle = await open(path, 'wx', 0o600)
  try {
    await handle.writeFile(content)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Give the file a second name in place of what had it; the first one stays. */
async function keepAs(path: string, keep: string): Promise<void> {
  const temporary = temporaryFor(keep)
  try {
    await link(path, temporary)
  } catch (error) {
    if (isMissing(error)) return
    throw error
  }
  try {
    await rename(temporary, keep)
  } catch (error) {
    await removeIfThere(temporary)
    throw error
  }
}

/*
 * State kept as a file of lines: each change is appended; the state is what the lines add up to.
 *
 * What always holds: when `append` has resolved, its record is on disk and applied; when it has
 * rejected, the record is not applied. Records are applied in the order of the file, one at a time.
 * The file stays in proportion to the state: once it is beyond 1 MiB and four times as long as the
 * state needs, it is written anew from it.
 *
 * When a write fails nobody knows how much of it is on disk, so the next append writes the whole
 * file anew instead of going on behind a torn line.
 */

const SMALL = 1024 * 1024
const FACTOR = 4
const NEWLINE = 0x0a

/** What a log adds up to. `T` is one record. */
export interface LogState<T> {
  /** Take one record in; must not fail. */
  apply(record: T): void
  /** Records that, applied to an empty state, give this one. */
  live(): Iterable<T>
}

/** A record as a line without its newline, and back; `decode` throws if the line is broken. */
export interface LineCodec<T> {
  encode(record: T): string
  decode(line: string): T
}

export class AppendLog<T> {
  readonly #queue = new Serial()
  /** Where to append; null while nobody knows what the file holds. */
  #file: FileHandle | null = null
  #size = 0
  /** Bytes that the state took when it was last measured. */
  #needed = 0

  private constructor(
    private readonly path: string,
    private readonly codec: LineCodec<T>,
    private readonly state: LogState<T>,
    private readonly log: Log,
  ) {}

  /**
   * Open the log and apply all it holds.
   *
   * A last line that was torn by a crash is dropped: its append never resolved. A broken line
   * before it means damage: the file is set aside and all that could be read is written anew,
   * with one warning.
   */
  static async open<T>(
    path: string,
    codec: LineCodec<T>,
    state: LogState<T>,
    clock: Clock,
    log: Log,
  ): Promise<AppendLog<T>> {
    const self = new AppendLog(path, codec, state, log)
    const content = await contentOf(path)
    const { records, broken, whole } = readLines(content, codec)
    for (const record of records) state.apply(record)
    if (broken > 0) {
      const aside = await setAside(path, 'corrupt', clock.now())
      log.warning(`${path} has ${broken} broken line(s); what it was is kept in ${aside}`)
    }
    if (broken > 0 || whole === 0) await self.#rewrite()
    else await self.#continueAt(whole, content.length)
    return self
  }

  /** Bring one record to disk, then apply it. */
  append(record: T): Promise<void> {
    const line = Buffer.from(this.codec.encode(record) + '\n')
    return this.#queue.run(async () => {
      await this.#write(line)
      this.state.apply(record)
      if (this.#size > Math.max(SMALL, FACTOR * this.#needed)) await this.#compact()
    })
  }

  /** Write the file anew from the state, so that nothing else stays in it; never rejects. */
  renew(): Promise<void> {
    return this.#queue.run(() => this.#compact())
  }

  /** Let go of the file, after all that was asked for. */
  close(): Promise<void> {
    return this.#queue.run(() => this.#letGo())
  }

  async #write(line: Buffer): Promise<void> {
    const file = this.#file ?? (await this.#rewrite())
    try {
      await file.appendFile(line)
      await file.datasync()
    } catch (error) {
      await this.#letGo()
      throw error
    }
    this.#size += line.length
  }

  /** The record that led here is on disk already, so that a failure is not its own. */
  async #compact(): Promise<void> {
    try {
      await this.#rewrite()
    } catch (error) {
      this.log.warning(`${this.path} could not be written anew: ${String(error)}`)
    }
  }

  async #rewrite(): Promise<FileHandle> {
    await this.#letGo()
    const lines = Array.from(this.state.live(), (record) => this.codec.encode(record) + '\n')
    const content = Buffer.from(lines.join(''))
    await writeWhole(this.path, content)
    const file = await open(this.path, 'a', 0o600)
    this.#file = file
    this.#size = this.#needed = content.length
    return file
  }

  async #continueAt(whole: number, size: number): Promise<void> {
    const file = await open(this.path, 'a', 0o600)
    this.#file = file
    this.#size = this.#needed = whole
    if (whole === size) return
    this.log.info(`${this.path}: the last line was torn by a crash and is dropped`)
    await file.truncate(whole)
    await file.datasync()
  }

  async #letGo(): Promise<void> {
    const file = this.#file
    this.#file = null
    await file?.close()
  }
}

interface Lines<T> {
  readonly records: readonly T[]
  /** Broken lines before the last one. */
  readonly broken: number
  /** Bytes up to the end of the last good line. */
  readonly whole: number
}

function readLines<T>(content: Buffer, codec: LineCodec<T>): Lines<T> {
  const text = new TextDecoder('utf-8', { fatal: true })
  const records: T[] = []
  let [start, bad, whole, broken] = [0, 0, 0, 0]
  for (let end = content.indexOf(NEWLINE); end >= 0; end = content.indexOf(NEWLINE, start)) {
    try {
      records.push(codec.decode(text.decode(content.subarray(start, end))))
      whole = end + 1
      broken = bad
    } catch {
      // Whatever a codec makes of damage, the line is broken.
      bad += 1
    }
    start = end + 1
  }
  // Two bad lines at the end are more than one torn append.
  return { records, broken: Math.max(broken, bad - 1), whole }
}

async function contentOf(path: string): Promise<Buffer> {
  try {
    return await readFile(path)
  } catch (error) {
    if (isMissing(error)) return Buffer.alloc(0)
    throw error
  }
}

/* One thing at a time, in the order in which they were asked for. */

export class Serial {
  #last: Promise<unknown> = Promise.resolve()

  /** Run `action` after everything before it has ended, well or badly; gives its result. */
  run<T>(action: () => Promise<T>): Promise<T> {
    const result = this.#last.then(action)
    this.#last = result.catch(() => undefined)
    return result
  }

  /** Resolves when all that was asked for so far has ended. */
  async idle(): Promise<void> {
    await this.#last
  }
}
