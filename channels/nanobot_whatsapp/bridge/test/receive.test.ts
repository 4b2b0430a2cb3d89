/** Messages that do not come encrypted for us, or come more than once. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { proto, type BinaryNode } from 'baileys'
import { eventKey, type MessageEvent } from '../src/protocol.js'
import { Receiver } from '../src/receive.js'
import { recordedLog, surroundings } from './parts.js'

const ME = '15550001111@s.whatsapp.net'
const ANN = '15557770000@s.whatsapp.net'
const GROUP = '120363000000000001@g.us'
const { log } = recordedLog()

class Desk {
  /** The other id that somebody is said to have. */
  other = '888@lid'
  readonly events: MessageEvent[] = []
  readonly receiver = new Receiver(
    {
      put: (event) => {
        const isNew = this.events.every((each) => eventKey(each) !== eventKey(event))
        return isNew ? this.events.push(event) : 0
      },
    },
    surroundings({
      otherOf: (person) => (person === ANN ? this.other : ''),
      messageTo: (id, chat, alternative) => {
        const isThere = id.startsWith('3EB0') && [chat, alternative].includes('888@lid')
        return isThere ? { conversation: 'what we sent' } : undefined
      },
    }),
    log,
  )

  get told(): readonly string[] {
    return this.events.map(({ id, text, notes }) => [id, text, ...notes].join(' '))
  }
}

function stanza(id: string, from: string, content: BinaryNode[] = []): BinaryNode {
  return { tag: 'message', attrs: { id, from, t: '1700000000' }, content }
}

test('a call is noted once, and asks for nothing', () => {
  const desk = new Desk()
  const call = {
    id: 'CALL1',
    chatId: ANN,
    from: ANN,
    date: new Date(1_700_000_000_000),
    offline: false,
  }
  desk.receiver.takeCalls([
    { ...call, status: 'offer', isVideo: true },
    { ...call, status: 'terminate' },
    { ...call, id: 'CALL2', status: 'offer', isGroup: true },
    { ...call, id: 'CALL3', status: 'offer', from: ME },
    { ...call, id: 'CALL 4', status: 'offer' },
    { ...call, id: 'CALL5', status: 'offer', date: new Date(Number.NaN) },
  ])
  const told = ['CALL1  a video call: nanobot cannot answer calls']
  assert.deepEqual(desk.told, [...told, 'CALL5  a voice call: nanobot cannot answer calls'])
  assert.deepEqual(
    desk.events.map(({ unanswered, sender, alt, at }) => [unanswered, sender, alt, at]),
    [
      [true, ANN, '888@lid', 1_700_000_000],
      [true, ANN, '888@lid', 0],
    ],
  )
})

test('a message that the phone passes on is an event, before the phone is answered', () => {
  const desk = new Desk()
  const webMessageInfoBytes = proto.WebMessageInfo.encode({
    key: { remoteJid: ANN, id: 'A1', fromMe: false },
    message: { conversation: 'from an advertisement' },
    messageTimestamp: 1_700_000_000,
    pushName: 'Ann',
  }).finish()
  const response = {
    protocolMessage: {
      type: proto.Message.ProtocolMessage.Type.PEER_DATA_OPERATION_REQUEST_RESPONSE_MESSAGE,
      peerDataOperationRequestResponseMessage: {
        peerDataOperationResult: [{ placeholderMessageResendResponse: { webMessageInfoBytes } }],
      },
    },
  }
  desk.receiver.keep(stanza('P1', ME), response)
  desk.receiver.keep(stanza('P2', ANN), response)
  assert.deepEqual(desk.told, ['A1 from an advertisement'], 'strangers pass nothing on')
  const [event] = desk.events
  assert.deepEqual(
    [event?.sender, event?.alt, event?.name, event?.at],
    [ANN, '888@lid', 'Ann', 1_700_000_000],
  )
})

test('what is not encrypted is taken from Baileys, and nothing else is', () => {
  const desk = new Desk()
  const plaintext = { tag: 'plaintext', attrs: {}, content: Buffer.from('x') }
  const viewOnce = { tag: 'unavailable', attrs: { type: 'view_once' } }
  desk.receiver.watch(stanza('A1', ANN, [plaintext]))
  desk.receiver.watch(stanza('A2', ANN, [viewOnce]))
  desk.receiver.watch(stanza('A3', ANN, [{ tag: 'enc', attrs: {}, content: Buffer.from('x') }]))
  const info = (id: string): { key: proto.IMessageKey; message: proto.IMessage } => {
    return { key: { remoteJid: ANN, id, fromMe: false }, message: { conversation: 'hi' } }
  }
  const once = { key: { remoteJid: ANN, id: 'A2', fromMe: false } }
  for (let times = 0; times < 2; times++) {
    desk.receiver.takeOpen([info('A1'), once, info('A3')])
  }
  assert.deepEqual(desk.told, [
    'A1 hi',
    'A2  a view-once message, which can only be opened on the phone',
  ])
})

test('a message is one event, however often it comes; its edits are others', () => {
  const desk = new Desk()
  const edit = {
    protocolMessage: {
      type: proto.Message.ProtocolMessage.Type.MESSAGE_EDIT,
      key: { id: 'A1' },
      editedMessage: { conversation: 'better' },
    },
  }
  for (let times = 0; times < 2; times++) {
    desk.receiver.keep(stanza('A1', ANN), { conversation: 'good' })
    desk.receiver.keep(stanza('A2', ANN), edit)
  }
  assert.deepEqual(desk.told, ['A1 good', 'A2 better'])
})

test('a member of a group cannot pass off what another one writes as known', () => {
  const desk = new Desk()
  const write = (participant: string, conversation: string): void => {
    const from = { ...stanza('A1', GROUP), attrs: { id: 'A1', from: GROUP, participant, t: '1' } }
    desk.receiver.keep(from, { conversation })
  }
  for (let times = 0; times < 2; times++) {
    write('777@lid', 'from Bob')
    write('888@lid', 'from Ann')
  }
  assert.deepEqual(desk.told, ['A1 from Bob', 'A1 from Ann'])
})

test('nobody is taken for us by what is said to be their other id', () => {
  const desk = new Desk()
  for (const [id, other] of Object.entries({ A1: ME, A2: '999@lid', A3: '888@lid' })) {
    desk.other = other
    desk.receiver.keep(stanza(id, ANN), { conversation: 'hi' })
  }
  assert.deepEqual(
    desk.events.map(({ alt }) => alt),
    ['', '', '888@lid'],
  )
})

test('a quote has the text that we sent there, and not what we sent to others', () => {
  const desk = new Desk()
  const quotedMessage = { conversation: 'what they say' }
  const contextInfo = { stanzaId: '3EB0AA', participant: ME, quotedMessage }
  const quoting = { extendedTextMessage: { text: 'hi', contextInfo } }
  const inGroup = stanza('A2', GROUP)
  desk.receiver.keep(stanza('A1', ANN), quoting)
  inGroup.attrs['participant'] = ANN
  desk.receiver.keep(inGroup, quoting)
  assert.deepEqual(
    desk.events.map(({ quote }) => [quote?.text, quote?.ours]),
    [
      ['what we sent', true],
      ['what they say', false],
    ],
  )
})

test('only what says something is remembered as read', () => {
  const { receiver } = new Desk()
  const key = { groupId: GROUP }
  const seen = (message: proto.IMessage): boolean =>
    Object.keys(receiver.keep(stanza('A1', ANN), message)).length > 0
  assert.ok(seen({ conversation: 'hi', senderKeyDistributionMessage: key }))
  assert.ok(!seen({ senderKeyDistributionMessage: key, messageContextInfo: {} }))
  assert.ok(!seen({ fastRatchetKeySenderKeyDistributionMessage: key }))
})
