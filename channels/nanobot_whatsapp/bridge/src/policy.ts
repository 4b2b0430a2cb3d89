/**
 * What follows from the end of a connection, and how long to wait; values in, values out.
 *
 * WhatsApp gives a number with most ends. Some are final (unlinked, banned), some are wishes
 * (restart, newer version, somebody else uses the link), and everything else passes: try again,
 * ever more slowly.
 */

/** How a connection ended. */
export interface Closing {
  /** WhatsApp's number for it; 0 if it was not WhatsApp that ended the connection. */
  readonly code: number
  /** In words, for people. */
  readonly words: string
  /** Seconds that WhatsApp wants us to stay away, 0 if it does not say. */
  readonly expire: number
  /** Our disk refused to keep something. */
  readonly disk: boolean
}

export type Verdict =
  /** The phone has unlinked us, or WhatsApp has. */
  | { readonly next: 'logged_out' }
  /** Try again at once. */
  | { readonly next: 'at_once' }
  /** Find out which version WhatsApp wants, then try again. */
  | { readonly next: 'newer_version' }
  /** Another program uses the link: try again after so many seconds. */
  | { readonly next: 'replaced'; readonly wait: number }
  /** Only a person can mend it, or time if `wait` seconds are given. */
  | { readonly next: 'banned'; readonly wait: number | null }
  | { readonly next: 'backoff' }

const REPLACED_WAIT = 300

/** What WhatsApp's numbers mean. */
const MEANING: ReadonlyMap<number, Verdict['next']> = new Map<number, Verdict['next']>([
  [401, 'logged_out'],
  [402, 'banned'],
  [403, 'banned'],
  [405, 'newer_version'],
  [406, 'banned'],
  [440, 'replaced'],
  [515, 'at_once'],
])

export function verdictOn(closing: Closing): Verdict {
  const next = closing.disk ? 'backoff' : (MEANING.get(closing.code) ?? 'backoff')
  if (next === 'replaced') return { next, wait: REPLACED_WAIT }
  if (next === 'banned') return { next, wait: closing.expire > 0 ? closing.expire : null }
  return { next }
}

const FIRST = 1
const LONGEST = 300
/** A connection that held this long (ms) was a good one: the waiting starts over after it. */
const GOOD = 60_000

/** How long to wait before the next attempt: 1 s to 5 min, twice as long each time, with jitter. */
export class Backoff {
  #failures = 0

  /** `random` gives numbers from 0 up to 1. */
  constructor(private readonly random: () => number) {}

  /** Seconds to wait, after a connection that was open for `open` milliseconds. */
  next(open: number): number {
    if (open >= GOOD) this.#failures = 0
    const most = Math.min(LONGEST, FIRST * 2 ** this.#failures)
    this.#failures = Math.min(this.#failures + 1, 16)
    return most * (0.5 + this.random() / 2)
  }
}
