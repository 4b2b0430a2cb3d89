/**
 * What the linked device says, stanza by stanza, and the mailbox of what waits for it.
 */

import { answer } from './answers.mjs'
import { bundleOf } from './linked.mjs'
import { Mailbox } from './mailbox.mjs'
import { child, children, node, stamp } from './nodes.mjs'

export class Desk {
  mailbox = new Mailbox()
  #network
  #online = false

  /** @param network the `FakeWhatsApp` */
  constructor(network) {
    this.#network = network
  }

  /** The device is not there: what comes now waits. */
  away() {
    this.#online = false
  }

  /** Sends a stanza: now if the device is there, and in any case until it is confirmed. */
  deliver(stanza) {
    const { current } = this.#network.gate
    const letter = this.mailbox.put(stanza)
    if (!this.#online || !current?.open) return
    letter.sent = true
    current.send(stanza)
  }

  /** Takes a stanza of the device. */
  async take(connection, stanza) {
    const take = this.#takers[stanza.tag]
    if (take) await take(connection, stanza)
    else this.#tell({ event: 'violation', text: `a stanza not known here: ${stanza.tag}` })
  }

  #takers = {
    iq: (connection, stanza) => this.#query(connection, stanza),
    message: (connection, stanza) => this.#network.delivery.take(connection, stanza),
    receipt: (connection, stanza) => this.#receipt(connection, stanza),
    ack: (_connection, stanza) => this.#acknowledged(stanza),
    ib: (connection, stanza) => this.#batch(connection, stanza),
    presence: (_connection, { attrs }) => this.#tell({ event: 'presence', ...attrs }),
    chatstate: (_connection, { attrs, content }) =>
      this.#tell({ event: 'typing', to: attrs.to, on: content[0].tag === 'composing' }),
  }

  #tell(event) {
    this.#network.tell(event)
  }

  async #query(connection, stanza) {
    const { type, xmlns } = stanza.attrs
    if (type === 'result') this.#signed(connection, stanza)
    else if (xmlns === 'md') this.#network.gate.membership(connection, stanza)
    else connection.send(await answer(stanza, this.#network))
    if (child(stanza, 'active')) this.#offline(connection)
  }

  /** The device has signed its membership: it must log in now, with a new connection. */
  #signed(connection, stanza) {
    if (!child(stanza, 'pair-device-sign')) return
    connection.send(node('stream:error', { code: '515' }))
    connection.close()
  }

  #offline(connection) {
    const count = String(this.mailbox.size)
    connection.send(node('ib', {}, [node('offline_preview', { count, message: count })]))
  }

  #batch(connection, stanza) {
    if (!child(stanza, 'offline_batch') || this.#online) return
    const letters = this.mailbox.again()
    for (const letter of letters) connection.send(letter)
    this.#online = true
    const count = String(letters.length)
    connection.send(node('ib', {}, [node('offline', { count })]))
    this.#tell({ event: 'online', offline: letters.length })
  }

  async #receipt(connection, stanza) {
    const { id, to, type = '', participant } = stanza.attrs
    const ack = { class: 'receipt', id, from: to, t: stamp() }
    connection.send(node('ack', type ? { ...ack, type } : ack))
    if (type === 'retry') {
      await this.#again(stanza)
      return
    }
    const more = children(child(stanza, 'list'), 'item').map((item) => item.attrs.id)
    for (const each of [id, ...more]) {
      const sender = participant ?? to
      if (type.startsWith('read')) this.#tell({ event: 'read', id: each, chat: to, sender, type })
      else if (this.mailbox.forget(each)) this.#tell({ event: 'confirmed', id: each })
    }
  }

  #acknowledged({ attrs }) {
    if (attrs.class !== 'message' || !this.mailbox.forget(attrs.id)) return
    if (attrs.error) this.#tell({ event: 'refused', id: attrs.id, code: attrs.error })
    else this.#tell({ event: 'confirmed', id: attrs.id })
  }

  async #again(receipt) {
    const { id } = receipt.attrs
    const count = Number(child(receipt, 'retry').attrs.count)
    this.#tell({ event: 'asked_again', id, count })
    await this.#network.writer.again(id, bundleOf(receipt))
  }
}
