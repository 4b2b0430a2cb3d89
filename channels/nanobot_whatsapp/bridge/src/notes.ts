/** What has no text and no file, in words. */

import type { proto } from 'baileys'

const LONGEST = 4096
const LONGEST_CARD = 8 * 1024
const MOST_PHONES = 10
const PHONE = /^(?:item\d{1,3}\.)?TEL(?:;[^:]*)?:(.*)$/i

interface Place {
  readonly degreesLatitude?: number | null
  readonly degreesLongitude?: number | null
  readonly name?: string | null
  readonly address?: string | null
}

/** `location: 52.52, 13.4 (Town Hall, High Street 1)` */
export function locationNote(what: string, place: Place): string {
  const { degreesLatitude, degreesLongitude, name, address } = place
  const words = [name, address].filter((each) => typeof each === 'string' && each !== '')
  const where = words.length === 0 ? '' : ` (${words.join(', ')})`
  return bounded(`${what}: ${degrees(degreesLatitude)}, ${degrees(degreesLongitude)}${where}`)
}

/** `contact: Ada, +15550001111` */
export function contactNote(contact: proto.Message.IContactMessage): string {
  // Line by line, so that no part of the pattern can go over the whole card again and again.
  const lines = (contact.vcard ?? '').slice(0, LONGEST_CARD).split(/\r\n?|\n/)
  const phones = lines.flatMap((line) => PHONE.exec(line)?.[1]?.trim() ?? []).slice(0, MOST_PHONES)
  return bounded(`contact: ${[contact.displayName ?? '', ...phones].filter(Boolean).join(', ')}`)
}

/** `poll: Lunch? (pizza / soup)` */
export function pollNote(poll: proto.Message.IPollCreationMessage): string {
  const options = (poll.options ?? []).map((option) => option.optionName ?? '')
  return bounded(`poll: ${poll.name ?? ''} (${options.join(' / ')})`)
}

/** `event: Picnic, 2030-05-01T10:00:00.000Z, the park: bring cake`; `start` in Unix seconds. */
export function eventNote(event: proto.Message.IEventMessage, start: number): string {
  const when = start > 0 && start < 1e11 ? new Date(start * 1000).toISOString() : ''
  const facts = [event.name, when, event.location?.name, event.isCanceled ? 'cancelled' : '']
  const told = event.description ? `: ${event.description}` : ''
  return bounded(`event: ${facts.filter(Boolean).join(', ')}${told}`)
}

export function inviteNote(invite: proto.Message.IGroupInviteMessage): string {
  return bounded(`invitation to the group ${invite.groupName ?? invite.groupJid ?? ''}`)
}

function degrees(value: number | null | undefined): string {
  return String(Number((value ?? 0).toFixed(6)))
}

function bounded(text: string): string {
  return text.slice(0, LONGEST)
}
