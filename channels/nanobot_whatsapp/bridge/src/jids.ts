/** WhatsApp's ids: numbers (`15550001111@s.whatsapp.net`), LIDs (`999@lid`), groups (`1@g.us`). */

import { isJidBroadcast, isJidGroup, isJidNewsletter, jidDecode, jidEncode } from 'baileys'
import { LONGEST_ID, type Jid } from './protocol.js'

/** Our own two ids; '' where one is not known. */
export interface Own {
  readonly number: Jid
  readonly lid: Jid
}

/** Servers that stand for another one. */
const SAME = new Map([
  ['c.us', 's.whatsapp.net'],
  ['hosted', 's.whatsapp.net'],
  ['hosted.lid', 'lid'],
])

/** The id without the device, in its usual form; '' for what is no id. */
export function bare(jid: string | null | undefined): Jid {
  if (!jid || jid.length > LONGEST_ID) return ''
  const parts = jidDecode(jid)
  if (parts === undefined) return ''
  const { user, server } = parts
  const known = SAME.get(server)
  if (known === 's.whatsapp.net' || known === 'lid') return jidEncode(user, known)
  return `${user}@${server}`
}

/** Whether both are ids, and of the same person or group. */
export function same(a: string | null | undefined, b: string | null | undefined): boolean {
  const known = bare(a)
  return known !== '' && known === bare(b)
}

/** Whether it is one of our own ids. */
export function isOurs(jid: Jid, own: Own): boolean {
  return same(jid, own.number) || same(jid, own.lid)
}

/** The other id of a person; '' where one of the two is ours and the other is not. */
export function otherId(person: Jid, other: Jid, own: Own): Jid {
  return isOurs(person, own) === isOurs(other, own) ? other : ''
}

export function isLid(jid: Jid): boolean {
  return jid.endsWith('@lid')
}

export function isNumber(jid: Jid): boolean {
  return jid.endsWith('@s.whatsapp.net')
}

export function isGroup(jid: Jid): boolean {
  return isJidGroup(jid) === true
}

/** Whether nothing that comes from there is meant for us: the status, broadcasts, newsletters. */
export function isPublic(jid: string): boolean {
  return isJidBroadcast(jid) === true || isJidNewsletter(jid) === true
}

/** The part before the @ without the device. */
export function userOf(jid: string): string {
  return jidDecode(jid)?.user ?? ''
}
