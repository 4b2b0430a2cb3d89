/** The addresses of people, devices and groups. */

import { jidDecode } from 'baileys'

export const SERVER = 's.whatsapp.net'

/** @returns {string} `15550001111@s.whatsapp.net`, with `:7` before the @ for device 7 */
export function jid(user, server = SERVER, device = 0) {
  return `${user}${device ? `:${device}` : ''}@${server}`
}

/** @returns {{user: string, server: string, device: number}} the parts; device 0 is the phone */
export function parts(address) {
  const found = jidDecode(address)
  if (!found) throw new Error(`not an address: ${address}`)
  return { user: found.user, server: found.server, device: found.device ?? 0 }
}

/** @returns {string} the address without its device */
export function bare(address) {
  const { user, server } = parts(address)
  return jid(user, server)
}

export function isGroup(address) {
  return address.endsWith('@g.us')
}

export function isLid(address) {
  return address.endsWith('@lid')
}
