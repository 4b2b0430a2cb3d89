/**
 * A WhatsApp for tests, on the loopback interface: one account with a phone, other people, groups,
 * and the server between them and one linked device.
 *
 * The linked device is a real, unmodified client; everything is encrypted as it is in reality, and
 * the people here read and write with keys of their own. What happens is told as events: `until`
 * waits for one, `events` has them all, and `violation` events are what a client must never do.
 */

import { Delivery } from './delivery.mjs'
import { Desk } from './desk.mjs'
import { Gate } from './gate.mjs'
import { Journal } from './journal.mjs'
import { MediaHost } from './media.mjs'
import { People } from './people.mjs'
import { seed } from './seed.mjs'
import { Writer } from './writer.mjs'

export { CURRENT_REVISION } from './media.mjs'

const OWNER = { number: '15550001111', lid: '999000111', name: 'Owner' }
const FIRST_DEVICE = 7

export class FakeWhatsApp {
  /** What the server knows of the linked device; null while none is linked. */
  linked = null
  /** One-time keys that it says a device has there from the beginning; 0 makes it send some. */
  claimed = 0
  gate = new Gate(this)
  desk = new Desk(this)
  delivery = new Delivery(this)
  writer = new Writer(this)
  #journal = new Journal()
  #device = FIRST_DEVICE

  /** @param me the account's owner: `{number, lid, name}`, number and LID in digits */
  constructor(me = OWNER) {
    this.people = new People(me)
    this.media = new MediaHost(this.tell)
  }

  /** Starts the servers. @returns {Promise<FakeWhatsApp>} */
  static async start(me) {
    const fake = new FakeWhatsApp(me)
    await fake.media.start()
    await fake.gate.start()
    return fake
  }

  async stop() {
    await this.gate.stop()
    await this.media.stop()
    for (const person of this.people.all()) person.close()
  }

  /** What `trust.mjs` needs, as the value of NANOBOT_FAKE_WHATSAPP. */
  get trust() {
    const { gate, media } = this
    return JSON.stringify({ url: gate.url, root: gate.trust.root, media: media.url })
  }

  // -- what happened

  tell = (event) => {
    this.#journal.add(event)
  }

  get events() {
    return this.#journal.events
  }

  get violations() {
    return this.events.filter(({ event }) => event === 'violation').map(({ text }) => text)
  }

  /** Calls the listener with each new event. */
  onEvent(listener) {
    this.#journal.listen(listener)
  }

  /** The next event of this kind that matches and that no `until` has returned before. */
  until(event, matches = () => true, seconds = 15) {
    return this.#journal.until(event, matches, seconds)
  }

  // -- the linked device

  /** The phone scans a QR code: the device becomes a member of the account. */
  scan(text) {
    this.gate.scan(text)
  }

  /** Somebody types an eight-character code into the phone. */
  enterCode(code) {
    return this.gate.enterCode(code)
  }

  /** Makes the folder that of a device which was linked before. */
  seed(folder) {
    this.adopt(seed(this.people.me, this.nextDevice(), folder))
  }

  nextDevice() {
    return this.#device++
  }

  /** This is the linked device from now on. */
  adopt(linked) {
    this.unlink()
    this.linked = linked
    linked.claimed ||= this.claimed
  }

  /** No device is linked any more, and nobody has a session with one. */
  unlink() {
    this.linked = null
    this.desk.mailbox.clear()
    for (const person of this.people.all()) person.forget()
  }

  // -- what people do

  /** Somebody writes. @see Writer.say @returns {Promise<string>} the message's id */
  say(told) {
    return this.writer.say(told)
  }

  /** A device asks for a message again, as it does when it could not read it. */
  askAgain(key, chat, id, device = 0) {
    const person = this.people.get(key)
    const address = person.address(chat.endsWith('@s.whatsapp.net') ? 'number' : 'lid', device)
    this.delivery.askAgain(this.gate.current, chat, id, { person, device, address })
  }

  /** Sends any stanza to the device, if it is there, and does not keep it. */
  send(stanza) {
    this.gate.current?.send(stanza)
  }

  // -- what goes wrong

  /** Cuts the connection off. */
  cut() {
    this.gate.cut()
  }

  /** Ends the connection with a stream error: 401 (unlinked), 440 (replaced), 503, 515 … */
  streamError(code) {
    this.gate.streamError(code)
  }

  /** Refuses the next logins with these reasons (401, 403, 405, 503 …), one each. */
  refuseLogins(reasons) {
    this.gate.refuse(reasons)
  }
}
