/** Whatever a message holds costs that message alone: the next is spooled, and all fit a line. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BinaryNode, proto } from 'baileys'
import { MAX_LINE, type MessageEvent } from '../src/protocol.js'
import { Receiver } from '../src/receive.js'
import { recordedLog, surroundings } from './parts.js'

const ME = '15550001111@s.whatsapp.net'
const ANN = '15557770000@s.whatsapp.net'
const ROUNDS = Number(process.env['NANOBOT_ROUNDS'] ?? 400)
const KEY = Buffer.alloc(32, 7)
const { Type } = proto.Message.ProtocolMessage

const file = {
  mediaKey: KEY,
  fileSha256: KEY,
  directPath: '/v/t62',
  fileLength: 9,
  mimetype: 'a/b',
}
const quoted = { stanzaId: 'A0', participant: ANN, quotedMessage: { conversation: 'before' } }
const contextInfo = { ...quoted, mentionedJid: [ME, ANN], isForwarded: true }
const contact = { displayName: 'Bob', vcard: 'BEGIN:VCARD\nTEL;waid=1:+49 1555 000\nEND' }
const key = { id: '3EB0X', remoteJid: ANN, participant: ANN }
const webMessageInfoBytes = proto.WebMessageInfo.encode({
  key: { remoteJid: ANN, id: 'P1', fromMe: false },
  message: { conversation: 'passed on' },
  messageTimestamp: 1_700_000_000,
}).finish()
const result = { placeholderMessageResendResponse: { webMessageInfoBytes } }
const passedOn = {
  type: Type.PEER_DATA_OPERATION_REQUEST_RESPONSE_MESSAGE,
  peerDataOperationRequestResponseMessage: { peerDataOperationResult: [result] },
}

const SAMPLES: readonly proto.IMessage[] = [
  { conversation: 'hi' },
  { extendedTextMessage: { text: 'hi', contextInfo } },
  { imageMessage: { ...file, caption: 'look', contextInfo } },
  { documentWithCaptionMessage: { message: { documentMessage: { ...file, fileName: 'a' } } } },
  { contactsArrayMessage: { contacts: [contact, contact] } },
  { locationMessage: { degreesLatitude: 52.5, degreesLongitude: 13.4, name: 'Town Hall' } },
  { eventMessage: { name: 'Picnic', startTime: 1_900_000_000, description: 'cake' } },
  { pollCreationMessageV3: { name: 'A?', options: [{ optionName: 'a' }, { optionName: 'b' }] } },
  { reactionMessage: { text: '+', key } },
  { protocolMessage: { type: Type.REVOKE, key } },
  { protocolMessage: { type: Type.MESSAGE_EDIT, key, editedMessage: { conversation: 'b' } } },
  { protocolMessage: passedOn },
]

/** Where events go; each of them has to fit a line. */
class Desk {
  readonly events: MessageEvent[] = []
  readonly receiver = new Receiver(
    {
      put: (event) => {
        const line = JSON.stringify({ type: 'event', seq: 1e12, event })
        assert.ok(Buffer.byteLength(line) < MAX_LINE)
        return this.events.push(event)
      },
    },
    surroundings({ otherOf: () => '888@lid' }),
    recordedLog().log,
  )
}

/** Numbers below a bound, the same each time (mulberry32). */
function numbers(seed: number): (bound: number) => number {
  let state = seed
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound
  }
}

/** Bytes with some of them changed, left out or repeated. */
function garbled(bytes: Uint8Array, below: (bound: number) => number): Uint8Array {
  let garbled = Buffer.from(bytes)
  for (let times = below(4); times > 0 && garbled.length > 0; times--) {
    const at = below(garbled.length)
    if (below(2) === 0) garbled[at] = below(256)
    else garbled = Buffer.concat([garbled.subarray(0, at), garbled.subarray(at + below(3) - 1)])
  }
  return garbled
}

function readable(bytes: Uint8Array): proto.IMessage {
  try {
    return proto.Message.decode(bytes)
  } catch {
    // Not a message; it is asked for again, and no event.
    return {}
  }
}

/** A stanza with odd attributes as well. */
function stanza(id: string, below: (bound: number) => number): BinaryNode {
  const odd = ['', '\ud800', 'x'.repeat(70_000), '-1', '1e999', ANN, ME, '999:7@lid', '@', 'a@b@c']
  const attrs: Record<string, string> = { id, from: below(3) === 0 ? ME : ANN, t: '1700000000' }
  for (const name of ['t', 'notify', 'participant', 'sender_lid', 'recipient', 'from', 'id']) {
    if (below(8) === 0) attrs[name] = odd[below(odd.length)] ?? ''
  }
  return { tag: 'message', attrs }
}

test('whatever a message holds, it is an event or none, and the next one is one', () => {
  const below = numbers(20)
  for (let round = 0; round < ROUNDS; round++) {
    const desk = new Desk()
    for (let n = 0; n < 5; n++) {
      const sample = proto.Message.fromObject(SAMPLES[below(SAMPLES.length)] ?? {})
      const message = readable(garbled(proto.Message.encode(sample).finish(), below))
      desk.receiver.keep(stanza(`A${n}`, below), message)
    }
    const good: BinaryNode = { tag: 'message', attrs: { id: 'B1', from: ANN, t: '1700000000' } }
    desk.receiver.keep(good, { conversation: 'hello' })
    assert.ok(desk.events.some(({ id, text }) => id === 'B1' && text === 'hello'))
  }
})

test('a message inside of a thousand others is one that cannot be read', () => {
  let message: proto.IMessage = { conversation: 'deep' }
  for (let depth = 0; depth < 1000; depth++) message = { ephemeralMessage: { message } }
  const desk = new Desk()
  desk.receiver.keep({ tag: 'message', attrs: { id: 'A1', from: ANN, t: '1' } }, message)
  assert.deepEqual(
    desk.events.map(({ id, unknown }) => [id, unknown]),
    [['A1', 'ephemeralMessage']],
  )
})
