/**
 * Who comes in: connections, logins, and the linking of a new device.
 *
 * One device is linked at a time, and it has one connection: a second login ends the first with
 * "replaced", a device that is not linked (any more) is refused with 401.
 */

import { once } from 'node:events'
import { WebSocketServer } from 'ws'

import { result } from './answers.mjs'
import { Connection } from './connection.mjs'
import { SERVER } from './jids.mjs'
import { Linked } from './linked.mjs'
import { child, node, stamp } from './nodes.mjs'
import { Trust } from './noise.mjs'
import { CodePairing, pairSuccess, readQr } from './pairing.mjs'

const STREAM_ERRORS = {
  401: () => node('stream:error', { code: '401' }, [node('conflict', { type: 'device_removed' })]),
  440: () => node('stream:error', {}, [node('conflict', { type: 'replaced' })]),
}

const REFS = [1, 2, 3, 4, 5, 6].map((number) => `2@ref${number}`)

export class Gate {
  /** The device's connection, once it has logged in or asks to be linked. */
  current = null
  trust = new Trust()
  #network
  #server
  #connections = new Set()
  #registering = null
  #refusals = []

  /** @param network the `FakeWhatsApp`; its `desk` takes the stanzas */
  constructor(network) {
    this.#network = network
  }

  async start() {
    this.#server = new WebSocketServer({ host: '127.0.0.1', port: 0 })
    this.#server.on('connection', (socket) => this.#accept(socket))
    await once(this.#server, 'listening')
    this.url = `ws://127.0.0.1:${this.#server.address().port}/`
  }

  async stop() {
    this.cut()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  cut() {
    for (const connection of this.#connections) connection.cut()
  }

  streamError(code) {
    const known = STREAM_ERRORS[code] ?? (() => node('stream:error', { code: String(code) }))
    this.current?.send(known())
    this.current?.close()
    if (code === 401) this.#network.unlink()
  }

  refuse(reasons) {
    this.#refusals = [...reasons]
  }

  // -- linking

  scan(text) {
    const { ref, noiseKey, identity, secret } = readQr(text)
    const found = this.#registering
    if (!found || !REFS.includes(ref)) throw new Error('a QR code that is not valid (any more)')
    if (!noiseKey.equals(found.key) || !identity.equals(Buffer.from(found.data.eIdent))) {
      throw new Error('a QR code with keys that are not those of the connection')
    }
    this.#link(secret)
  }

  async enterCode(code) {
    const found = this.#registering
    if (!found?.code) throw new Error('no device asked to be linked with a code')
    found.connection.send(await found.code.enter(code.replace('-', '')))
  }

  /** A query of the device about its membership. */
  membership(connection, query) {
    const stage = child(query, 'link_code_companion_reg')
    if (stage?.attrs.stage === 'companion_hello') {
      this.#registering.code = new CodePairing(this.#network.people.me, query)
      connection.send(result(query, this.#registering.code.answer))
      this.#network.tell({ event: 'code_requested', number: stage.attrs.jid })
      return
    }
    connection.send(result(query))
    if (stage) {
      this.#link(this.#registering.code.finish(query))
      return
    }
    this.#network.tell({ event: 'unlinked' })
    this.#network.unlink()
  }

  #link(secret) {
    const { connection, key, data } = this.#registering
    const { me } = this.#network.people
    const device = this.#network.nextDevice()
    const linked = Linked.registering(me, device, key, data)
    this.#network.adopt(linked)
    this.#network.tell({ event: 'paired', number: linked.number, lid: linked.lid })
    connection.send(pairSuccess(me, linked, secret))
  }

  // -- connections

  #accept(socket) {
    const connection = new Connection(socket, this.trust, {
      opened: (...login) => this.#opened(...login),
      stanza: (...received) => this.#network.desk.take(...received),
      closed: (gone) => this.#closed(gone),
      failed: (_gone, error) => this.#network.tell({ event: 'violation', text: error.stack }),
    })
    this.#connections.add(connection)
  }

  #closed(connection) {
    this.#connections.delete(connection)
    if (connection !== this.current) return
    this.current = null
    this.#network.desk.away()
    this.#network.tell({ event: 'closed' })
  }

  #opened(connection, key, payload) {
    const { linked, desk, tell } = this.#network
    const reason = this.#refusals.shift()
    if (reason) this.#refuse(connection, reason)
    else if (payload.devicePairingData) this.#register(connection, key, payload.devicePairingData)
    else if (!linked?.mayLogIn(key, payload)) this.#refuse(connection, 401)
    else {
      if (this.current?.open) this.streamError(440)
      this.current = connection
      desk.away()
      tell({ event: 'login', revision: payload.userAgent.appVersion.tertiary })
      connection.send(node('success', { t: stamp(), lid: linked.lid, creation: '1' }))
    }
  }

  #refuse(connection, reason) {
    this.#network.tell({ event: 'login_refused', reason })
    connection.send(node('failure', { reason: String(reason) }))
    connection.close()
  }

  #register(connection, key, data) {
    this.#registering = { connection, key, data, code: null }
    this.current = connection
    const refs = REFS.map((ref) => node('ref', {}, Buffer.from(ref)))
    const attrs = { from: SERVER, type: 'set', id: 'pair-0', xmlns: 'md' }
    connection.send(node('iq', attrs, [node('pair-device', {}, refs)]))
    this.#network.tell({ event: 'registering' })
  }
}
