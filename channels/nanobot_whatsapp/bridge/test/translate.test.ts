/** What becomes of WhatsApp's messages, by table. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BinaryNode, proto } from 'baileys'
import { contentOf } from '../src/content.js'
import { MAX_LINE, type MessageEvent } from '../src/protocol.js'
import { envelopeOf, translate } from '../src/receive.js'
import { surroundings } from './parts.js'

const ME = '15550001111@s.whatsapp.net'
const MY_LID = '999@lid'
const ANN = '15557770000@s.whatsapp.net'
const GROUP = '120363000000000001@g.us'
const EDIT = proto.Message.ProtocolMessage.Type.MESSAGE_EDIT
const REVOKE = proto.Message.ProtocolMessage.Type.REVOKE
const KEY = Buffer.alloc(32, 7)

const around = surroundings({ title: 'Friends' })

function event(attrs: Record<string, string>, message: proto.IMessage): MessageEvent | null {
  const stanza: BinaryNode = {
    tag: 'message',
    attrs: { id: 'A1', from: ANN, t: '1700000000', notify: 'Ann', ...attrs },
  }
  const envelope = envelopeOf(stanza, around.auth.own)
  // As it comes from the wire, where a field that is not there is not an own property.
  return envelope && translate(envelope, proto.Message.decode(encoded(message)), around)
}

function encoded(message: proto.IMessage): Uint8Array {
  return proto.Message.encode(proto.Message.fromObject(message)).finish()
}

function said(message: proto.IMessage): MessageEvent {
  const found = event({}, message)
  assert.ok(found, 'there is something in it for people')
  return found
}

const file = {
  mediaKey: KEY,
  fileSha256: KEY,
  directPath: '/v/t62/file',
  fileLength: 1234,
  mimetype: 'image/png',
}

const TEXTS: readonly (readonly [string, proto.IMessage, string])[] = [
  ['plain', { conversation: 'hi' }, 'hi'],
  ['extended', { extendedTextMessage: { text: 'hi' } }, 'hi'],
  ['disappearing', { ephemeralMessage: { message: { conversation: 'hi' } } }, 'hi'],
  ['written on our own phone', { deviceSentMessage: { message: { conversation: 'hi' } } }, 'hi'],
  ['a caption', { imageMessage: { ...file, caption: 'look' } }, 'look'],
  [
    'a caption of a document',
    { documentWithCaptionMessage: { message: { documentMessage: { ...file, caption: 'look' } } } },
    'look',
  ],
  ['a button', { buttonsResponseMessage: { selectedDisplayText: 'Yes' } }, 'Yes'],
  ['a choice from a list', { listResponseMessage: { title: 'Tea' } }, 'Tea'],
  ['a button of a template', { templateButtonReplyMessage: { selectedDisplayText: 'No' } }, 'No'],
  ['a flow', { interactiveResponseMessage: { body: { text: 'Done' } } }, 'Done'],
  [
    'what a business writes',
    { buttonsMessage: { contentText: 'Your code', footerText: 'Shop' } },
    'Your code\nShop',
  ],
]

for (const [name, message, text] of TEXTS) {
  test(`the text of ${name} is found`, () => {
    assert.equal(said(message).text, text)
  })
}

const NOTES: readonly (readonly [string, proto.IMessage, string])[] = [
  [
    'a location',
    { locationMessage: { degreesLatitude: 52.52, degreesLongitude: 13.4, name: 'Town Hall' } },
    'location: 52.52, 13.4 (Town Hall)',
  ],
  [
    'a live location',
    { liveLocationMessage: { degreesLatitude: -1, degreesLongitude: 2.5 } },
    'live location: -1, 2.5',
  ],
  [
    'a contact',
    { contactMessage: { displayName: 'Bob', vcard: 'BEGIN:VCARD\nTEL;waid=1:+49 1555 000\nEND' } },
    'contact: Bob, +49 1555 000',
  ],
  [
    'a contact with more numbers than anybody has',
    { contactMessage: { displayName: 'Bob', vcard: 'TEL:1\r\n'.repeat(100) } },
    `contact: Bob${', 1'.repeat(10)}`,
  ],
  [
    'a contact that is not read to its end',
    { contactMessage: { displayName: 'Bob', vcard: `${'x'.repeat(8192)}\nTEL:1` } },
    'contact: Bob',
  ],
  [
    // Read over the ends of lines, each of them would be a beginning that goes on to the last.
    'a contact whose numbers never come',
    { contactMessage: { displayName: 'Bob', vcard: `${'TEL\n'.repeat(1000)}:1` } },
    'contact: Bob',
  ],
  [
    'a poll',
    { pollCreationMessageV3: { name: 'A?', options: [{ optionName: 'a' }, { optionName: 'b' }] } },
    'poll: A? (a / b)',
  ],
  [
    'an event',
    { eventMessage: { name: 'Picnic', startTime: 1_900_000_000, description: 'bring cake' } },
    'event: Picnic, 2030-03-17T17:46:40.000Z: bring cake',
  ],
  ['an invitation', { groupInviteMessage: { groupName: 'A' } }, 'invitation to the group A'],
  ['a file without a key', { imageMessage: { url: 'x' } }, 'a file (image) that cannot be fetched'],
]

for (const [name, message, words] of NOTES) {
  test(`${name} becomes a note`, () => {
    assert.deepEqual(said(message).notes, [words])
  })
}

const FILES: readonly (readonly [string, proto.IMessage])[] = [
  ['image', { imageMessage: file }],
  ['image', { viewOnceMessageV2: { message: { imageMessage: { ...file, viewOnce: true } } } }],
  ['video', { videoMessage: file }],
  ['video', { ptvMessage: file }],
  ['audio', { audioMessage: file }],
  ['voice', { audioMessage: { ...file, ptt: true } }],
  ['document', { documentMessage: { ...file, fileName: 'a.pdf' } }],
  ['sticker', { stickerMessage: file }],
]

for (const [kind, message] of FILES) {
  test(`a file is handed on as ${kind}: ${Object.keys(message).join()}`, () => {
    const { media } = said(message)
    assert.deepEqual([media?.kind, media?.mime, media?.size], [kind, 'image/png', 1234])
    const [key, sha256] = [KEY.toString('base64'), KEY.toString('base64')]
    assert.deepEqual(media?.ref, { kind, path: '/v/t62/file', url: '', key, sha256 })
  })
}

const NOTHING: readonly (readonly [string, proto.IMessage])[] = [
  ['a reaction to no message', { reactionMessage: { text: '+', key: { id: '' } } }],
  ['a vote', { pollUpdateMessage: {} }],
  ['a key', { senderKeyDistributionMessage: { groupId: GROUP } }],
  ['an album that announces its items', { albumMessage: { expectedImageCount: 2 } }],
  ['nothing at all', {}],
]

for (const [name, message] of NOTHING) {
  test(`${name} is nothing for people`, () => {
    assert.equal(event({}, message), null)
  })
}

test('the answers to a form are notes, one a field', () => {
  const paramsJson = JSON.stringify({ flow_token: 'x', taste: 'good', days: ['mo', 'tu'] })
  const form = { body: { text: 'Sent' }, nativeFlowResponseMessage: { paramsJson } }
  const one = said({ interactiveResponseMessage: form })
  assert.deepEqual([one.text, ...one.notes], ['Sent', 'taste: good', 'days: ["mo","tu"]'])
  for (const odd of ['no JSON', '7', '[']) {
    const flow = { nativeFlowResponseMessage: { paramsJson: odd } }
    assert.deepEqual(said({ interactiveResponseMessage: flow }).notes, [
      `answers to a form: ${odd}`,
    ])
  }
})

test('an order says what was written with it', () => {
  const one = said({ orderMessage: { orderTitle: 'Tea', itemCount: 2, message: 'please' } })
  assert.deepEqual([one.text, ...one.notes], ['please', 'order: Tea'])
})

test('a message that its sender took back is named', () => {
  const found = said({ protocolMessage: { type: REVOKE, key: { id: 'X' } } })
  assert.deepEqual([found.deletes, found.text, found.edits], ['X', '', ''])
})

test('a reaction to what we sent says what it is to', () => {
  const found = said({ reactionMessage: { text: '👍', key: { id: '3EB0X' } } })
  assert.deepEqual([found.reaction, found.quote?.text, found.text], ['👍', 'ours', ''])
})

test('a reaction in private to what we did not send, and one taken away, are told as well', () => {
  const theirs = said({ reactionMessage: { text: '+', key: { id: 'X' } } })
  assert.deepEqual([theirs.reaction, theirs.quote?.id, theirs.quote?.ours], ['+', 'X', false])
  const gone = said({ reactionMessage: { text: '', key: { id: '3EB0X' } } })
  assert.deepEqual([gone.reaction, gone.quote?.ours], ['none', true])
})

test('a kind that is not known here is named', () => {
  const found = said({ scheduledCallCreationMessage: { title: 'call' } })
  assert.deepEqual([found.unknown, found.text], ['scheduledCallCreationMessage', ''])
})

test('an empty part of whatever kind is not fatal', () => {
  const fields = Object.keys(proto.Message.prototype).filter((field) => /message/i.test(field))
  assert.ok(fields.length > 50)
  for (const field of fields) contentOf(proto.Message.fromObject({ [field]: {} }))
})

test('an edit names the message that it changes', () => {
  const change = {
    type: EDIT,
    key: { id: 'A0' },
    editedMessage: { conversation: 'better' },
  }
  for (const message of [
    { protocolMessage: change },
    { editedMessage: { message: { protocolMessage: change } } },
  ]) {
    const found = said(message)
    assert.deepEqual([found.id, found.edits, found.text], ['A1', 'A0', 'better'])
  }
})

test('a quote says what was quoted, and whether it is ours', () => {
  const quote = (stanzaId: string): MessageEvent['quote'] => {
    const contextInfo = {
      stanzaId,
      participant: '15557770000:3@s.whatsapp.net',
      quotedMessage: { imageMessage: { ...file, caption: 'before' } },
      isForwarded: true,
    }
    const found = said({ extendedTextMessage: { text: 'hi', contextInfo } })
    assert.ok(found.forwarded)
    return found.quote
  }
  assert.deepEqual(quote('3EB0AA'), { id: '3EB0AA', sender: ANN, text: 'ours', ours: true })
  assert.deepEqual(quote('A0'), { id: 'A0', sender: ANN, text: 'before', ours: false })
})

test('we are mentioned by our number and by our LID, on whatever device', () => {
  const mentions = (jid: string): readonly unknown[] => {
    const attrs = { from: GROUP, participant: '888:4@lid', participant_pn: ANN }
    const contextInfo = { mentionedJid: [jid] }
    const found = event(attrs, { extendedTextMessage: { text: 'hi', contextInfo } })
    assert.deepEqual([found?.group, found?.title], [true, 'Friends'])
    assert.deepEqual([found?.chat, found?.sender, found?.alt], [GROUP, '888@lid', ANN])
    return [found?.mentions, found?.mentions_me]
  }
  assert.deepEqual(mentions(ME), [[ME], true])
  assert.deepEqual(mentions('999:7@lid'), [[MY_LID], true])
  assert.deepEqual(mentions(ANN), [[ANN], false])
})

test('people are called by their ids without devices and hosts', () => {
  const from = (attrs: Record<string, string>): readonly unknown[] => {
    const found = event(attrs, { conversation: 'hi' })
    return [found?.chat, found?.sender, found?.alt]
  }
  assert.deepEqual(from({ from: ANN, sender_lid: '888@lid' }), [ANN, ANN, '888@lid'])
  assert.deepEqual(from({ from: '888:2@lid', sender_pn: ANN }), ['888@lid', '888@lid', ANN])
  assert.deepEqual(from({ from: '15557770000:99@hosted' }), [ANN, ANN, ''])
  assert.deepEqual(from({ from: ANN, sender_lid: MY_LID }), [ANN, ANN, ''], 'nobody else is us')
})

test('what is not written to us is not handed on', () => {
  const words = { conversation: 'hi' }
  const heard = (attrs: Record<string, string>): boolean => event(attrs, words) !== null
  assert.ok(!heard({ from: 'status@broadcast', participant: ANN }))
  assert.ok(!heard({ from: '1@newsletter' }))
  assert.ok(!heard({ from: ME, recipient: ANN }), 'written by us to somebody')
  assert.ok(!heard({ from: GROUP, participant: MY_LID }), 'written by us to a group')
  assert.ok(heard({ from: ME, recipient: ME }), 'a note to self')
  assert.ok(heard({ from: MY_LID, recipient: MY_LID }))
  assert.ok(!heard({ from: ME, recipient: ME, id: '3EB0AA' }), 'our own answer to it')
  assert.ok(!heard({ from: '' }), 'a stanza that breaks the rules')
})

test('a text has an end', () => {
  const found = said({ conversation: 'x'.repeat(70_000) })
  assert.equal(found.text.length, 65_536)
  assert.deepEqual(found.notes, ['the message was too long; the rest was cut off'])
})

for (const odd of ['', 'x'.repeat(257), 'two words', 'line\n', '\u2603']) {
  test(`${JSON.stringify(odd.slice(0, 9))} is no id of a message`, () => {
    assert.equal(event({ id: odd }, { conversation: 'hi' }), null)
    const change = { type: EDIT, key: { id: odd }, editedMessage: { conversation: 'better' } }
    assert.equal(event({}, { protocolMessage: change }), null)
    const contextInfo = { stanzaId: odd, quotedMessage: { conversation: 'before' } }
    assert.equal(said({ extendedTextMessage: { text: 'hi', contextInfo } }).quote, null)
  })
}

test('an id of somebody that is too long to be one is none', () => {
  const contextInfo = { mentionedJid: [`${'1'.repeat(300)}@lid`, ANN] }
  const found = said({ extendedTextMessage: { text: 'hi', contextInfo } })
  assert.deepEqual(found.mentions, [ANN])
})

for (const worst of ['\0', '\u2603', '\ud83d']) {
  test(`an event fits a line however much of ${JSON.stringify(worst)} is in it`, () => {
    const huge = worst.repeat(70_000)
    const contextInfo: proto.IContextInfo = {
      stanzaId: 'x'.repeat(256),
      participant: `${worst.repeat(200)}@s.whatsapp.net`,
      quotedMessage: { conversation: huge },
      mentionedJid: Array.from({ length: 2000 }, () => `${worst.repeat(240)}@s.whatsapp.net`),
    }
    const contacts = Array.from({ length: 50 }, () => ({ displayName: huge, vcard: huge }))
    const messages: proto.IMessage[] = [
      { extendedTextMessage: { text: huge, contextInfo } },
      { documentMessage: { ...file, caption: huge, contextInfo, fileName: huge, mimetype: huge } },
      { documentMessage: { ...file, caption: huge, contextInfo, directPath: huge, url: huge } },
      { contactsArrayMessage: { contacts, contextInfo } },
      { locationMessage: { name: huge, address: huge, contextInfo } },
      { pollCreationMessage: { name: huge, options: [{ optionName: huge }], contextInfo } },
    ]
    for (const message of messages) {
      const stanza = { id: 'x'.repeat(256), from: GROUP, participant: ANN, notify: huge }
      const found = event(stanza, message)
      assert.ok(found)
      const line = JSON.stringify({ type: 'event', seq: Number.MAX_SAFE_INTEGER, event: found })
      assert.ok(Buffer.byteLength(line) < MAX_LINE, `${Buffer.byteLength(line)}`)
      if (found.text !== '') {
        assert.equal(found.text.length, 65_536)
        assert.match(found.notes.at(-1) ?? '', /cut off/)
      }
    }
  })
}

test('that we are mentioned is known however many others are', () => {
  const mentionedJid = [...Array.from({ length: 500 }, (_, i) => `${i + 1}@lid`), MY_LID]
  const found = said({ extendedTextMessage: { text: 'all', contextInfo: { mentionedJid } } })
  assert.deepEqual([found.mentions.length, found.mentions_me], [128, true])
})
