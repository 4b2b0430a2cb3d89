/**
 * What people write to the linked device, encrypted by the device they write on.
 *
 * Messages are encrypted one after another, so their order on the wire is that of the calls.
 */

import { randomBytes } from 'node:crypto'

import { isGroup, isLid } from './jids.mjs'
import { KINDS, compose } from './messages.mjs'
import { encrypted } from './media.mjs'
import { node, stamp } from './nodes.mjs'

export class Writer {
  #network
  #turn = Promise.resolve()

  constructor(network) {
    this.#network = network
  }

  /**
   * Somebody writes to the linked device's account, or into a group.
   *
   * @param told `from` (a key; `me` is the owner on the phone), what `compose` takes, and any of
   *   `group` (its JID), `to` (for the owner: whose chat; else the owner's own), `id`, `as`
   *   (`number` or `lid`, 1:1 only), `hidden` (the other address is not told), `at` (unix seconds),
   *   `device`, `file` ({kind, mime, name, base64})
   * @returns {Promise<string>} the message's id
   */
  say(told) {
    const work = this.#turn.then(() => this.#say(told))
    this.#turn = work.catch(() => undefined)
    return work
  }

  async #say(told) {
    const id = told.id ?? `3A${randomBytes(9).toString('hex').toUpperCase()}`
    const { people } = this.#network
    const person = people.get(told.from)
    const letter = new Letter(this.#network, person, {
      ...told,
      id,
      media: await this.#upload(told),
    })
    person.written.set(id, letter)
    this.#network.desk.deliver(await letter.stanza())
    return id
  }

  async #upload({ file, media }) {
    if (!file) return media
    const { kind, mime, name } = file
    const { bytes, fields } = await encrypted(Buffer.from(file.base64, 'base64'), KINDS[kind].keys)
    return { kind, mime, name, fields, ...this.#network.media.keep(bytes) }
  }

  /** The linked device could not read a message and asks for it again. */
  async again(id, bundle) {
    const work = this.#turn.then(async () => {
      for (const person of this.#network.people.all()) {
        const letter = person.written.get(id)
        if (letter) this.#network.desk.deliver(await letter.stanzaAgain(bundle))
      }
    })
    this.#turn = work.catch(() => undefined)
    await work
  }
}

/** One message of one person, to be encrypted as often as it is asked for. */
class Letter {
  #network
  #person
  #told
  #count = 0

  constructor(network, person, told) {
    this.#network = network
    this.#person = person
    this.#told = told
    this.at = stamp(told.at)
  }

  get #device() {
    return this.#person.devices.get(this.#told.device ?? 0)
  }

  get #own() {
    return this.#person === this.#network.people.me
  }

  async stanza() {
    const { linked } = this.#network
    if (!(await this.#device.knows(linked.lid)))
      await this.#device.begin(linked.lid, linked.bundle())
    const message = this.#message()
    if (!this.#told.group) return this.#around([await this.#device.encrypt(linked.lid, message)])
    const author = this.#author()
    return this.#around(
      await this.#device.encryptForGroup(linked.lid, this.#told.group, author, message),
    )
  }

  async stanzaAgain(bundle) {
    const { linked } = this.#network
    if (bundle) await this.#device.begin(linked.lid, bundle)
    this.#count += 1
    const attrs = { count: String(this.#count) }
    const message = this.#message()
    if (!this.#told.group) {
      return this.#around([await this.#device.encrypt(linked.lid, message, attrs)])
    }
    const { group } = this.#told
    const author = this.#author()
    const enc = await this.#device.encryptAgainForGroup(linked.lid, group, author, message, attrs)
    return this.#around([enc])
  }

  #message() {
    const { group, to } = this.#told
    const chat = group ?? this.#chat(to)
    const message = compose(this.#told, chat)
    if (!this.#own || group) return message
    return { deviceSentMessage: { destinationJid: chat, message } }
  }

  #form() {
    const { group, as } = this.#told
    if (group) return this.#network.people.group(group).addressing
    return as ?? 'number'
  }

  #author() {
    return this.#person.address(this.#form(), this.#told.device ?? 0)
  }

  #chat(to = 'me') {
    return this.#network.people.get(to).address(this.#form())
  }

  #around(content) {
    const { id, group, to, hidden, edit, media } = this.#told
    const author = this.#author()
    const other = this.#person.address(isLid(author) ? 'number' : 'lid')
    const attrs = { id, t: this.at, notify: this.#person.name, type: media ? 'media' : 'text' }
    attrs.addressing_mode = isLid(author) ? 'lid' : 'pn'
    if (edit) attrs.edit = '1'
    if (group) Object.assign(attrs, { from: group, participant: author })
    else attrs.from = author
    if (!group && this.#own) Object.assign(attrs, this.#recipient(to))
    else if (!hidden) attrs[otherName(author, group)] = other
    return node('message', attrs, content)
  }

  #recipient(to) {
    const chat = this.#chat(to)
    const other = this.#network.people.get(to ?? 'me').address(isLid(chat) ? 'number' : 'lid')
    return { recipient: chat, [isLid(chat) ? 'peer_recipient_pn' : 'peer_recipient_lid']: other }
  }
}

function otherName(author, group) {
  const who = group && isGroup(group) ? 'participant' : 'sender'
  return `${who}_${isLid(author) ? 'pn' : 'lid'}`
}
