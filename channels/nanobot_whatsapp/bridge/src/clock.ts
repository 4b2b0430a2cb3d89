/**
 * The way to the time: nothing here asks for it anywhere else, so that tests need not wait.
 */

export interface Clock {
  /** Milliseconds since 1970. */
  now(): number
  /** Call `action` once after `ms` milliseconds, unless the returned function is called first. */
  after(ms: number, action: () => void): () => void
}

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, action) {
    const timer = setTimeout(action, ms)
    return () => {
      clearTimeout(timer)
    }
  },
}
