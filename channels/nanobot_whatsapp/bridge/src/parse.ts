/**
 * Reading the daemon's lines.
 *
 * What always holds: a line is either one of the values of `FromDaemon` or a `ProtocolError`. What
 * is unknown in type or field is no error, because a newer daemon may say more than we know.
 */

import type { FromDaemon, MediaRef, OutFileKind, Pair, Request, SendParams } from './protocol.js'

/** A line that no daemon would send. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError'
}

/** What a request lacks. */
class BadParameter extends Error {
  override readonly name = 'BadParameter'
}

type Fields = Readonly<Record<string, unknown>>

export function parseLine(line: string): FromDaemon {
  const fields = object(json(line))
  if (fields === null) throw new ProtocolError('a line is not a JSON object')
  try {
    return message(fields)
  } catch (error) {
    if (error instanceof BadParameter) throw new ProtocolError(error.message)
    throw error
  }
}

function message(fields: Fields): FromDaemon {
  const type = text(fields, 'type')
  switch (type) {
    case 'welcome':
      return welcome(fields)
    case 'goodbye':
      return { type, reason: text(fields, 'reason') }
    case 'ack':
      return { type, seq: count(fields, 'seq') }
    case 'ping':
      return { type, id: count(fields, 'id') }
    case 'request':
      return request(fields)
    default:
      return { type: 'unknown', name: type }
  }
}

function welcome(fields: Fields): FromDaemon {
  return {
    type: 'welcome',
    protocol: count(fields, 'protocol'),
    pair: oneOf<Pair>(fields, 'pair', ['none', 'qr', 'code']),
    number: fields['number'] === undefined ? '' : text(fields, 'number'),
    read_receipts: flag(fields, 'read_receipts'),
    online: flag(fields, 'online'),
  }
}

/** A wrong request costs itself an answer and nothing else, as long as it has an id. */
function request(fields: Fields): FromDaemon {
  const id = count(fields, 'id')
  try {
    const params = part(fields, 'params')
    return { type: 'request', id, request: methodOf(text(fields, 'method'), params) }
  } catch (error) {
    if (!(error instanceof BadParameter)) throw error
    return { type: 'bad_request', id, reason: error.message }
  }
}

function methodOf(method: string, params: Fields): Request {
  switch (method) {
    case 'send':
      return { method, params: sendParams(params) }
    case 'download':
      return { method, params: { ref: mediaRef(params), limit: count(params, 'limit') } }
    case 'typing':
      return { method, params: { to: text(params, 'to'), on: flag(params, 'on') } }
    case 'read':
      return {
        method,
        params: {
          chat: text(params, 'chat'),
          id: text(params, 'id'),
          sender: text(params, 'sender'),
        },
      }
    default:
      throw new BadParameter(`there is no method ${JSON.stringify(method)}`)
  }
}

function sendParams(params: Fields): SendParams {
  return {
    to: text(params, 'to'),
    id: text(params, 'id'),
    text: text(params, 'text'),
    quote: quote(params),
    file: file(params),
  }
}

function quote(params: Fields): SendParams['quote'] {
  if (isAbsent(params['quote'])) return null
  const fields = part(params, 'quote')
  return {
    id: text(fields, 'id'),
    sender: text(fields, 'sender'),
    text: text(fields, 'text'),
    from_me: flag(fields, 'from_me'),
  }
}

const FILE_KINDS: readonly OutFileKind[] = ['image', 'audio', 'voice', 'video', 'document']

function file(params: Fields): SendParams['file'] {
  if (isAbsent(params['file'])) return null
  const fields = part(params, 'file')
  return {
    path: text(fields, 'path'),
    kind: oneOf(fields, 'kind', FILE_KINDS),
    mime: text(fields, 'mime'),
    name: text(fields, 'name'),
  }
}

function mediaRef(params: Fields): MediaRef {
  const ref: Record<string, string | number> = {}
  for (const [key, value] of Object.entries(part(params, 'ref'))) {
    if (typeof value !== 'string' && typeof value !== 'number') {
      throw new BadParameter('"ref" holds something else than text and numbers')
    }
    ref[key] = value
  }
  return ref
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null
}

function part(fields: Fields, key: string): Fields {
  const value = object(fields[key])
  if (value === null) throw new BadParameter(`"${key}" is not an object`)
  return value
}

function text(fields: Fields, key: string): string {
  const value = fields[key]
  if (typeof value !== 'string') throw new BadParameter(`"${key}" is not text`)
  return value
}

function flag(fields: Fields, key: string): boolean {
  const value = fields[key]
  if (typeof value !== 'boolean') throw new BadParameter(`"${key}" is not true or false`)
  return value
}

function count(fields: Fields, key: string): number {
  const value = fields[key]
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new BadParameter(`"${key}" is not a whole number from 0`)
  }
  return value
}

function oneOf<T extends string>(fields: Fields, key: string, allowed: readonly T[]): T {
  const value = allowed.find((each) => each === fields[key])
  if (value === undefined) throw new BadParameter(`"${key}" is none of ${allowed.join(', ')}`)
  return value
}

function object(value: unknown): Fields | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null
  return value as Fields
}

function json(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    throw new ProtocolError('a line is not JSON')
  }
}
