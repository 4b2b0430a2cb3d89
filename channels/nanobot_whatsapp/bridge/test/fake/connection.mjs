/**
 * One client's connection: handshake, then stanzas both ways, one after another in their order.
 */

import { decodeBinaryNode, encodeBinaryNode } from 'baileys'

import { Frames, Noise, framed } from './noise.mjs'

export class Connection {
  #socket
  #noise
  #frames = new Frames()
  #work = Promise.resolve()
  #handlers
  #greeted = false

  /**
   * @param socket the WebSocket
   * @param trust the server's keys
   * @param handlers async `opened(connection, key, payload)`, async `stanza(connection, node)`,
   *   `closed(connection)` and `failed(connection, error)`
   */
  constructor(socket, trust, handlers) {
    this.#socket = socket
    this.#noise = new Noise(trust)
    this.#handlers = handlers
    this.ready = false
    socket.on('message', (bytes) => this.#after(() => this.#take(bytes)))
    socket.on('error', () => socket.terminate())
    socket.on('close', () => handlers.closed(this))
  }

  get open() {
    return this.#socket.readyState === this.#socket.OPEN
  }

  /** Sends a stanza; one for a connection that has gone is lost, as on a real network. */
  send(node) {
    if (!this.open) return
    this.#socket.send(framed(this.#noise.encrypt(encodeBinaryNode(node))))
  }

  /** Ends the connection in order. */
  close() {
    this.#socket.close()
  }

  /** Cuts the connection off, as a network that fails does. */
  cut() {
    this.#socket.terminate()
  }

  #after(step) {
    this.#work = this.#work.then(step).catch((error) => {
      this.#handlers.failed(this, error)
      this.cut()
    })
  }

  async #take(bytes) {
    for (const frame of this.#frames.take(bytes)) {
      if (!this.#greeted) {
        this.#greeted = true
        this.#socket.send(framed(this.#noise.hello(this.#frames.header, frame)))
      } else if (!this.ready) {
        const { key, payload } = this.#noise.finish(frame)
        this.ready = true
        await this.#handlers.opened(this, key, payload)
      } else {
        const node = await decodeBinaryNode(this.#noise.decrypt(frame))
        await this.#handlers.stanza(this, node)
      }
    }
  }
}
