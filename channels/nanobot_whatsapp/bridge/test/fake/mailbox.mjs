/**
 * Messages on their way to the linked device.
 *
 * WhatsApp keeps a message until the device has confirmed it with a receipt, or has acknowledged it
 * with an error; then it forgets it for good. What was not confirmed when the connection ended is
 * delivered again after the next login, marked as `offline`, in its order.
 */

export class Mailbox {
  #letters = []

  /** @returns the letter, which is not sent yet */
  put(stanza) {
    const letter = { stanza, sent: false }
    this.#letters.push(letter)
    return letter
  }

  /** Ids of what is not confirmed. */
  get ids() {
    return this.#letters.map(({ stanza }) => stanza.attrs.id)
  }

  get size() {
    return this.#letters.length
  }

  /** A new connection: everything is to be sent again. @returns the stanzas, marked */
  again() {
    return this.#letters.map((letter, index) => {
      letter.sent = true
      const attrs = { ...letter.stanza.attrs, offline: String(index + 1) }
      return { ...letter.stanza, attrs }
    })
  }

  /** Forgets the oldest letter with this id that was sent. @returns whether there was one */
  forget(id) {
    const index = this.#letters.findIndex(({ stanza, sent }) => sent && stanza.attrs.id === id)
    if (index < 0) return false
    this.#letters.splice(index, 1)
    return true
  }

  clear() {
    this.#letters = []
  }
}
