/** Bytes in, lines out: UTF-8, ended by a newline, at most `MAX_LINE` bytes with it. */

import { ProtocolError } from './parse.js'
import { MAX_LINE } from './protocol.js'

const NEWLINE = 0x0a

export class Lines {
  #rest: Buffer[] = []
  #length = 0;

  /** The lines that `chunk` completes; a `ProtocolError` for one that is too long or no UTF-8. */
  *feed(chunk: Buffer): Generator<string> {
    let start = 0
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      this.#keep(chunk.subarray(start, end + 1))
      yield this.#take()
      start = end + 1
    }
    this.#keep(chunk.subarray(start))
  }

  #keep(part: Buffer): void {
    this.#rest.push(part)
    this.#length += part.length
    if (this.#length > MAX_LINE) throw new ProtocolError('a line is too long')
  }

  #take(): string {
    const line = Buffer.concat(this.#rest)
    this.#rest = []
    this.#length = 0
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(line)
    } catch {
      throw new ProtocolError('a line is not UTF-8')
    }
  }
}
