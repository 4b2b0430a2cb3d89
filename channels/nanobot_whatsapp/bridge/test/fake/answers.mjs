/**
 * What the server answers to queries (`iq` stanzas), by namespace.
 *
 * A query that is not known here is answered with an empty result and noted as a violation, so that
 * nothing goes on unseen.
 */

import { SERVER, isLid, jid, parts } from './jids.mjs'
import { child, children, node, stamp } from './nodes.mjs'

const KEY_INDEX = 1

/** @returns the stanza that answers a query with this content */
export function result(query, content = []) {
  return node('iq', { from: query.attrs.to ?? SERVER, type: 'result', id: query.attrs.id }, content)
}

/** @returns the stanza that refuses a query */
export function refusal(query, code, text) {
  const attrs = { from: query.attrs.to ?? SERVER, type: 'error', id: query.attrs.id }
  return node('iq', attrs, [node('error', { code: String(code), text })])
}

/** @returns a stanza for the query; `network` is the `FakeWhatsApp` */
export async function answer(query, network) {
  const { xmlns = '', type } = query.attrs
  const known = ANSWERS[`${type} ${xmlns}`] ?? ANSWERS[xmlns]
  if (known) return known(query, network)
  network.tell({ event: 'violation', text: `a query in a namespace not known here: ${xmlns}` })
  return result(query)
}

const empty = (query) => result(query)

const ANSWERS = {
  'get usync': devices,
  'get encrypt': keys,
  'set encrypt': upload,
  'get w:g2': group,
  'set w:m': mediaHosts,
  'get privacy': privacy,
  'set privacy': empty,
  'set passive': empty,
  'get abt': empty,
  'get blocklist': empty,
  'get w:p': empty,
  'w:stats': empty,
  'set w:sync:app:state': empty,
  'set urn:xmpp:whatsapp:dirty': empty,
}

function devices(query, { people, linked }) {
  const usync = child(query, 'usync')
  const asked = (child(usync, 'query')?.content ?? []).map(({ tag }) => tag)
  const users = children(child(usync, 'list'), 'user').map((user) => {
    const address = user.attrs.jid ?? phone(user)
    return node('user', { jid: address }, facts(asked, address, people, linked))
  })
  return result(query, [node('usync', {}, [node('list', {}, users)])])
}

function phone(user) {
  const digits = child(user, 'contact').content.toString().replace(/\D/g, '')
  return jid(digits)
}

function facts(asked, address, people, linked) {
  const person = people.find(address)
  const known = {
    contact: () => node('contact', { type: person ? 'in' : 'out' }),
    lid: () => (person && !isLid(address) ? node('lid', { val: person.lid }) : undefined),
    devices: () => (person ? deviceList(person, people, linked) : undefined),
  }
  return asked.map((tag) => known[tag]?.()).filter(Boolean)
}

function deviceList(person, people, linked) {
  const ids = [...person.devices.keys()]
  if (person === people.me && linked) ids.push(linked.device)
  const list = ids.map((id) => {
    const index = id ? { 'key-index': String(KEY_INDEX) } : {}
    return node('device', { id: String(id), ...index })
  })
  return node('devices', {}, [node('device-list', {}, list)])
}

async function keys(query, { people, linked }) {
  if (child(query, 'count')) {
    return result(query, [node('count', { value: String(linked.preKeysLeft) })])
  }
  if (child(query, 'digest')) return result(query, [node('digest', {}, [])])
  const users = []
  for (const { attrs } of children(child(query, 'key'), 'user')) {
    const bundle = await bundleFor(attrs.jid, people, linked)
    if (!bundle) return refusal(query, 404, 'item-not-found')
    users.push(node('user', { jid: attrs.jid, t: stamp() }, bundle))
  }
  return result(query, [node('list', {}, users)])
}

/** A device may ask for its own keys: Baileys counts itself among the members of a group. */
async function bundleFor(address, people, linked) {
  const person = people.find(address)
  const { device } = parts(address)
  if (person === people.me && device === linked.device) return linked.bundleNodes()
  return person?.devices.get(device)?.bundle()
}

function upload(query, { linked }) {
  if (child(query, 'rotate')) linked.rotate(query)
  else linked.upload(query)
  return result(query)
}

function group(query, { people }) {
  if (child(query, 'participating')) {
    const groups = people.groups().map(described)
    return result(query, [node('groups', {}, groups)])
  }
  const found = people.group(query.attrs.to)
  if (!found) return refusal(query, 404, 'item-not-found')
  return result(query, [described(found)])
}

function described({ id, subject, addressing, members }) {
  const creation = stamp()
  const attrs = {
    id: parts(id).user,
    subject,
    creation,
    s_t: creation,
    addressing_mode: addressing,
  }
  const people = members.map((person) => {
    const address = person.address(addressing)
    const other = addressing === 'lid' ? { phone_number: person.number } : { lid: person.lid }
    return node('participant', { jid: address, ...other })
  })
  return node('group', attrs, people)
}

function mediaHosts(query) {
  const host = node('host', { hostname: 'mmg.whatsapp.net', maxContentLengthBytes: '104857600' })
  return result(query, [node('media_conn', { auth: 'auth', ttl: '3600' }, [host])])
}

function privacy(query) {
  const category = node('category', { name: 'readreceipts', value: 'all' })
  return result(query, [node('privacy', {}, [category])])
}
