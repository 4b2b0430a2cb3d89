/**
 * What one decryption may change in what is kept of somebody's Signal sessions.
 *
 * There can be many sessions with one device, and libsignal tries one after the other. An attempt
 * with the wrong one fails, but moves that session's ratchet, and libsignal keeps that: the other
 * side goes on with a session that we cannot read any more. So all but the one that worked are put
 * back.
 */

interface Entry {
  readonly indexInfo: { readonly used: number }
}

type Entries = Readonly<Record<string, Entry>>

/** `after` with the sessions as in `before` that were only tried; both as libsignal keeps them. */
export function withoutAttempts<T>(before: unknown, after: T): T {
  const [old, now] = [entriesOf(before), entriesOf(after)]
  if (old === null || now === null) return after
  const worked = usedOne(old, now)
  const entries = Object.entries(now).map(([key, entry]) => {
    return [key, key === worked ? entry : (old[key] ?? entry)] as const
  })
  return { ...after, _sessions: Object.fromEntries(entries) }
}

/** The session that worked: it was stamped with the time. */
function usedOne(old: Entries, now: Entries): string | undefined {
  const keys = Object.keys(now)
  const stamp = (key: string): number => now[key]?.indexInfo.used ?? 0
  const stamped = keys.filter((key) => stamp(key) !== old[key]?.indexInfo.used)
  // Within one millisecond the stamp may be the same; then it is that of the latest session.
  const candidates = stamped.length > 0 ? stamped : keys
  return candidates.toSorted((a, b) => stamp(b) - stamp(a))[0]
}

function entriesOf(record: unknown): Entries | null {
  if (typeof record !== 'object' || record === null || !('_sessions' in record)) return null
  const entries = record._sessions
  return typeof entries === 'object' && entries !== null ? (entries as Entries) : null
}
