/**
 * Messages that the linked device sends: read by those they are for, then acknowledged.
 *
 * How they are acknowledged is a policy that a test sets: `ok`; `error` (with a code; nobody gets
 * the message); `none`; `hold` (until released); `cut` (delivered, then the connection is cut off);
 * `lost` (cut off before it is delivered). A device that cannot read a message asks for it again.
 */

import { child, children, big, node, stamp } from './nodes.mjs'
import { isGroup, parts } from './jids.mjs'
import { decrypted } from './media.mjs'
import { describe } from './messages.mjs'

/** The error for a message to an address that nobody has. */
const NOBODY = '404'

export class Delivery {
  #network
  #policy = { mode: 'ok' }
  #held = []
  #retries = new Map()

  constructor(network) {
    this.#network = network
  }

  /** Sets the policy: `{mode, code, times}`; after `times` messages it is `ok` again. */
  set({ mode = 'ok', code = 500, times = Infinity } = {}) {
    this.#policy = { mode, code, times }
  }

  /** Sends the acknowledgements that were held back. */
  release() {
    for (const send of this.#held.splice(0)) send()
  }

  /** Takes a message of the linked device. */
  async take(connection, stanza) {
    const { mode, code } = this.#next()
    const ack = (error) => connection.send(acknowledgement(stanza, error))
    if (mode === 'lost') return connection.cut()
    if (mode === 'error') return ack(String(code))
    if (!this.#known(stanza.attrs.to)) return ack(NOBODY)
    await this.#deliver(connection, stanza)
    if (mode === 'cut') connection.cut()
    else if (mode === 'hold') this.#held.push(ack)
    else if (mode === 'ok') ack()
  }

  #known(to) {
    const { people } = this.#network
    return Boolean(isGroup(to) ? people.group(to) : people.find(to))
  }

  #next() {
    const policy = this.#policy
    policy.times -= 1
    if (policy.times <= 0) this.#policy = { mode: 'ok' }
    return policy
  }

  async #deliver(connection, stanza) {
    const { id, to } = stanza.attrs
    const { tell, linked } = this.#network
    if (stanza.attrs.category === 'peer') return tell({ event: 'peer_message', id })
    this.#checkIdentity(stanza)
    const readings = []
    for (const target of this.#targets(stanza)) {
      readings.push(await this.#read(connection, stanza, target, linked.lid))
    }
    const read = readings.filter(({ message }) => message)
    const fresh = read.filter(({ person }) => !person.seen.has(id))
    for (const { person } of read) person.seen.add(id)
    const keys = (some) => [...new Set(some.map(({ person }) => person.key))]
    tell({
      event: 'received',
      id,
      to,
      by: keys(fresh),
      again: keys(read.filter((reading) => !fresh.includes(reading))),
      unreadable: keys(readings.filter(({ message }) => !message)),
      ...(read.length ? await this.#words(read, stanza.attrs.edit) : {}),
    })
    for (const reading of fresh) this.#confirm(connection, stanza, reading)
  }

  /** Who gets what: `[{person, device, address, parts}]`, complaining about who is left out. */
  #targets(stanza) {
    const { people } = this.#network
    const common = children(stanza, 'enc')
    const shares = children(child(stanza, 'participants'), 'to')
    const named = new Map(shares.map((share) => [this.#where(share.attrs.jid), share]))
    const { to, participant } = stanza.attrs
    if (!shares.length && common.length && common[0].attrs.type !== 'skmsg') {
      return [this.#target(participant ?? to, common)]
    }
    const members = isGroup(to) ? people.group(to).members : [people.find(to), people.me]
    return [...new Set(members)].flatMap((person) =>
      [...person.devices.keys()].map((device) => {
        const share = named.get(`${person.key} ${device}`)
        const encs = [...(share ? children(share, 'enc') : []), ...common]
        if (!encs.length) this.#complain(`message ${stanza.attrs.id} leaves out ${person.key}`)
        const address = share?.attrs.jid ?? person.address(addressing(people, to), device)
        return { person, device, address, encs }
      }),
    )
  }

  #target(address, encs) {
    const person = this.#network.people.find(address)
    if (!person) throw new Error(`a message for nobody: ${address}`)
    return { person, device: parts(address).device, address, encs }
  }

  #where(address) {
    const person = this.#network.people.find(address)
    if (!person) this.#complain(`a message for nobody: ${address}`)
    return `${person?.key} ${parts(address).device}`
  }

  async #read(connection, stanza, { person, device, address, encs }, linked) {
    let message
    try {
      for (const enc of encs) {
        message = await person.devices.get(device).decrypt(linked, stanza.attrs.to, enc)
      }
    } catch (error) {
      this.#network.tell({
        event: 'unreadable',
        id: stanza.attrs.id,
        by: person.key,
        error: error.message,
      })
      this.askAgain(connection, stanza.attrs.to, stanza.attrs.id, { person, device, address })
      return { person, device, address }
    }
    return { person, device, address, message: message?.deviceSentMessage?.message ?? message }
  }

  async #words([first, ...others], edit) {
    const { media, ...said } = describe(first.message)
    for (const { person, message } of others) {
      const same = describe(message).text === said.text
      if (!same) this.#complain(`${first.person.key} and ${person.key} read different things`)
    }
    if (Boolean(said.edits) !== (edit === '1')) this.#complain('an edit that is not marked as one')
    return { ...said, media: media && (await this.#file(media)) }
  }

  async #file(media) {
    try {
      const plain = await decrypted(this.#network.media.read(media.directPath), media, media.keys)
      const name = media.fileName ?? ''
      return { mime: media.mimetype, name, size: plain.length, base64: plain.toString('base64') }
    } catch (error) {
      this.#complain(`a file that cannot be read: ${error.message}`)
      return null
    }
  }

  /** A device asks for a message again, as it could not read it. */
  askAgain(connection, chat, id, { person, device, address }) {
    const key = `${id} ${person.key} ${device}`
    const count = (this.#retries.get(key) ?? 0) + 1
    this.#retries.set(key, count)
    if (count > 5) return
    const from = isGroup(chat) ? { from: chat, participant: address } : { from: address }
    const attrs = { ...from, id, type: 'retry', t: stamp() }
    const { registrationId } = person.devices.get(device)
    connection.send(
      node('receipt', attrs, [
        node('retry', { count: String(count), id, t: stamp(), v: '1' }),
        node('registration', {}, big(registrationId, 4)),
      ]),
    )
  }

  #confirm(connection, stanza, { person, address }) {
    if (person === this.#network.people.me) return
    const { id, to } = stanza.attrs
    const from = isGroup(to) ? { from: to, participant: address } : { from: address }
    connection.send(node('receipt', { ...from, id, t: stamp() }))
  }

  #checkIdentity(stanza) {
    const encs = [stanza, ...children(child(stanza, 'participants'), 'to')].flatMap((part) =>
      children(part, 'enc'),
    )
    const first = encs.some(({ attrs }) => attrs.type === 'pkmsg')
    if (first && !child(stanza, 'device-identity')) {
      this.#complain('a first message of a session without the device identity')
    }
  }

  #complain(text) {
    this.#network.tell({ event: 'violation', text })
  }
}

function addressing(people, to) {
  if (isGroup(to)) return people.group(to).addressing
  return to.endsWith('@lid') ? 'lid' : 'number'
}

function acknowledgement(stanza, error) {
  const { id, to, participant, type } = stanza.attrs
  const attrs = { class: 'message', id, from: to, t: stamp() }
  if (participant) attrs.participant = participant
  if (type) attrs.type = type
  if (error) attrs.error = error
  return node('ack', attrs)
}
