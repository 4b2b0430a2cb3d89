import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>
}

interface Lock {
  readonly packages: Readonly<Record<string, Readonly<Record<string, unknown>>>>
}

async function load(name: string): Promise<unknown> {
  return JSON.parse(await readFile(new URL(`../${name}`, import.meta.url), 'utf8'))
}

test('the lockfile names every package by its hash and none by an address', async () => {
  const { packages } = (await load('package-lock.json')) as Lock
  for (const [path, entry] of Object.entries(packages)) {
    if (path === '') continue
    assert.match(String(entry['integrity']), /^sha512-/, path)
    assert.equal(entry['resolved'], undefined, path)
  }
})

test('what runs at a user’s is pinned to one version', async () => {
  const { dependencies } = (await load('package.json')) as Manifest
  for (const version of Object.values(dependencies)) assert.match(version, /^\d+\.\d+\.\d+/)
})
