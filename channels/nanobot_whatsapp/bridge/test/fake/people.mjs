/**
 * Who is on the fake network: the account's owner with a phone, other people, and groups.
 */

import { Device } from './device.mjs'
import { bare, jid, parts } from './jids.mjs'

/** Somebody with a number, a LID, a name and devices; device 0 is the phone. */
export class Person {
  /** Messages this person wrote to the linked device, by id, to write them again on request. */
  written = new Map()
  /** Ids of messages of the linked device that this person has read. */
  seen = new Set()

  constructor({ key, number, lid, name }) {
    this.key = key
    this.name = name
    this.number = jid(number)
    this.lid = jid(lid, 'lid')
    this.devices = new Map([[0, new Device()]])
  }

  /** The address in the form that is asked for. */
  address(form, device = 0) {
    const { user, server } = parts(form === 'lid' ? this.lid : this.number)
    return jid(user, server, device)
  }

  is(address) {
    const plain = bare(address)
    return plain === this.number || plain === this.lid
  }

  forget() {
    for (const device of this.devices.values()) device.forget()
  }

  close() {
    for (const device of this.devices.values()) device.close()
  }
}

export class People {
  #people = new Map()
  #groups = new Map()

  /** @param me the owner of the account: `{number, lid, name}` */
  constructor(me) {
    this.me = this.add({ key: 'me', ...me })
  }

  /** Puts a person on the network. @returns {Person} */
  add({ key, number, lid, name = key }) {
    const person = new Person({ key, number, lid, name })
    this.#people.set(key, person)
    return person
  }

  /** Makes a group of the owner and the people with these keys. */
  addGroup({ id, subject, members, addressing = 'lid' }) {
    const people = [this.me, ...members.map((key) => this.get(key))]
    const group = { id, subject, addressing, members: people }
    this.#groups.set(id, group)
    return group
  }

  /** @returns {Person} the person with this key */
  get(key) {
    const person = this.#people.get(key)
    if (!person) throw new Error(`nobody here is called ${key}`)
    return person
  }

  /** @returns {Person | undefined} who has this address, with or without a device */
  find(address) {
    return [...this.#people.values()].find((person) => person.is(address))
  }

  group(id) {
    return this.#groups.get(id)
  }

  groups() {
    return [...this.#groups.values()]
  }

  all() {
    return [...this.#people.values()]
  }
}
