/** What has happened, in order, and waiting for what is to happen. */

export class Journal {
  events = []
  #taken = new Set()
  #listeners = new Set()

  add(event) {
    this.events.push(event)
    for (const listener of [...this.#listeners]) listener(event)
  }

  listen(listener) {
    this.#listeners.add(listener)
  }

  /** The first event of this kind that matches and was not returned before; waits for it. */
  until(kind, matches, seconds) {
    const fits = (event) => event.event === kind && !this.#taken.has(event) && matches(event)
    const there = this.events.find(fits)
    if (there) return Promise.resolve(this.#take(there))
    return new Promise((resolve, reject) => {
      const listener = (event) => {
        if (!fits(event)) return
        this.#listeners.delete(listener)
        clearTimeout(timer)
        resolve(this.#take(event))
      }
      const timer = setTimeout(() => {
        this.#listeners.delete(listener)
        const seen = this.events.slice(-12).map((event) => JSON.stringify(event).slice(0, 200))
        reject(
          new Error(`no event ${kind} within ${seconds} s; the last were:\n${seen.join('\n')}`),
        )
      }, seconds * 1000)
      this.#listeners.add(listener)
    })
  }

  #take(event) {
    this.#taken.add(event)
    return event
  }
}
