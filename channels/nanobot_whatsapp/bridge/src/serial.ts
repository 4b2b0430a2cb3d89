/** One thing at a time, in the order in which they were asked for. */

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
