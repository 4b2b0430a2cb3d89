/** Which version of WhatsApp Web we say we are: Baileys' own, until WhatsApp wants a newer one. */

import { DEFAULT_CONNECTION_CONFIG, fetchLatestWaWebVersion, type WAVersion } from 'baileys'
import type { Log } from './log.js'

const PATIENCE = 10_000

export class Versions {
  #current: WAVersion = DEFAULT_CONNECTION_CONFIG.version

  constructor(private readonly log: Log) {}

  get current(): WAVersion {
    return this.#current
  }

  /** Ask WhatsApp for its version; whether it is another one than the current one. */
  async refresh(): Promise<boolean> {
    const found = await fetchLatestWaWebVersion({ signal: AbortSignal.timeout(PATIENCE) })
    if (!found.isLatest || String(found.version) === String(this.#current)) {
      this.log.warning('WhatsApp wants a newer version, and none could be found')
      return false
    }
    this.#current = found.version
    this.log.info(`going on as WhatsApp Web ${found.version.join('.')}`)
    return true
  }
}
