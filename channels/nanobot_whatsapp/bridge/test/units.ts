/**
 * All tests but those of the whole helper with its WhatsApp, in one process: to load Baileys for
 * each file takes longer than what is in it.
 */

import { readdir } from 'node:fs/promises'

const here = new URL('./', import.meta.url)
const names = (await readdir(here)).filter((name) => name.endsWith('.test.ts'))
for (const name of names.toSorted()) {
  if (name !== 'e2e.test.ts') await import(new URL(name, here).href)
}
