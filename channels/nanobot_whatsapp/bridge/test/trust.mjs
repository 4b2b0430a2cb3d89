/**
 * Makes an unmodified Baileys talk to the fake WhatsApp: `node --import ./trust.mjs main.js`.
 *
 * NANOBOT_FAKE_WHATSAPP says where the fake is: {"url": "ws://…", "root": "<hex>", "media":
 * "http://…"}. The root key of the fake becomes the trusted one, connections go to its address, and
 * requests to WhatsApp's hosts go to its media host. A request to any other host is refused, so no
 * test can leave the machine.
 */

import http from 'node:http'
import https from 'node:https'
import { createRequire, syncBuiltinESMExports } from 'node:module'
import { pathToFileURL } from 'node:url'

const OURS = /(^|\.)whatsapp\.(net|com)$/

/** The module as the program that is started will see it. */
async function baileys() {
  const program = process.argv[1] ? pathToFileURL(process.argv[1]) : import.meta.url
  return import(pathToFileURL(createRequire(program).resolve('baileys')))
}

function mapped(address, media) {
  const url = new URL(address)
  if (url.host === media.host) return url
  if (url.protocol !== 'https:' || !OURS.test(url.hostname)) {
    throw new Error(`a request that leaves the machine: ${url.protocol}//${url.host}`)
  }
  return new URL(`${url.pathname}${url.search}`, media)
}

function fetchFrom(media) {
  const real = globalThis.fetch
  globalThis.fetch = async (input, init) => {
    const address = input.url ?? input
    return real(mapped(address, media), init)
  }
}

function requestFrom(media) {
  https.request = (first, ...rest) => {
    const given = typeof first === 'object' && !(first instanceof URL) ? first : {}
    const address =
      first === given ? `https://${given.hostname ?? given.host}${given.path ?? '/'}` : first
    const extra = typeof rest[0] === 'object' ? rest.shift() : {}
    const { method, headers, timeout } = { ...given, ...extra }
    return http.request(mapped(address, media), { method, headers, timeout }, ...rest)
  }
  https.get = (...args) => {
    const request = https.request(...args)
    request.end()
    return request
  }
  syncBuiltinESMExports()
}

/** Tells this process to trust the fake and to go nowhere else. */
export async function trust({ url, root, media }) {
  const { DEFAULT_CONNECTION_CONFIG, WA_CERT_DETAILS } = await baileys()
  WA_CERT_DETAILS.PUBLIC_KEY = Buffer.from(root, 'hex')
  DEFAULT_CONNECTION_CONFIG.waWebSocketUrl = url
  fetchFrom(new URL(media))
  requestFrom(new URL(media))
}

if (process.env.NANOBOT_FAKE_WHATSAPP) {
  await trust(JSON.parse(process.env.NANOBOT_FAKE_WHATSAPP))
}
