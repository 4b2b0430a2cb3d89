/** Something has happened: for one waiter, which then looks for itself. */

export class Signal {
  #happened = false
  #wake: (() => void) | null = null

  notify(): void {
    this.#happened = true
    this.#wake?.()
  }

  /** Resolves when `notify` is called, or at once if it was since the last wait ended. */
  async next(): Promise<void> {
    if (!this.#happened) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    this.#wake = null
    this.#happened = false
  }
}
