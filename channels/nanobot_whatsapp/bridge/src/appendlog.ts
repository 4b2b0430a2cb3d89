/**
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

import { open, readFile, type FileHandle } from 'node:fs/promises'
import { isMissing, setAside, writeWhole } from './atomic.js'
import type { Clock } from './clock.js'
import type { Log } from './log.js'
import { Serial } from './serial.js'

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
