import assert from 'node:assert/strict'
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { privateFolder, setAside, writeWhole } from '../src/disk.js'
import { FakeClock, temporaryFolder } from './parts.js'

test('a file is written whole, for its owner only, and leaves nothing beside it', async (t) => {
  const folder = await temporaryFolder(t)
  writeWhole(join(folder, 'creds.json'), 'first')
  writeWhole(join(folder, 'creds.json'), 'second')
  assert.equal(await readFile(join(folder, 'creds.json'), 'utf8'), 'second')
  assert.equal((await stat(join(folder, 'creds.json'))).mode & 0o777, 0o600)
  assert.deepEqual(await readdir(folder), ['creds.json'])
})

test('a write that fails leaves the old file and no temporary one', async (t) => {
  const folder = await temporaryFolder(t)
  writeWhole(join(folder, 'a.json'), 'old')
  await mkdir(join(folder, 'in the way', 'full'), { recursive: true })
  assert.throws(() => {
    writeWhole(join(folder, 'in the way'), 'new')
  })
  assert.throws(() => {
    writeWhole(join(folder, 'none', 'a.json'), 'new')
  })
  assert.equal(await readFile(join(folder, 'a.json'), 'utf8'), 'old')
  const names = await readdir(folder)
  assert.deepEqual(names.sort(), ['a.json', 'in the way'])
})

test('what a killed writer left is swept away, other files are not', async (t) => {
  const folder = await temporaryFolder(t)
  for (const name of ['.a.json.0123.tmp', 'b.tmp', '.hidden']) {
    await writeFile(join(folder, name), '')
  }
  privateFolder(folder)
  assert.deepEqual((await readdir(folder)).sort(), ['.hidden', 'b.tmp'])
})

test('a file that is set aside keeps its content under a name with the time', async (t) => {
  const folder = await temporaryFolder(t)
  await writeFile(join(folder, 'keys.jsonl'), 'damaged')
  const aside = setAside(join(folder, 'keys.jsonl'), 'corrupt', new FakeClock())
  assert.match(aside, /keys\.jsonl\.corrupt-20231114T221320Z-[0-9a-f]{6}$/)
  assert.equal(await readFile(aside, 'utf8'), 'damaged')
  assert.equal((await readdir(folder)).length, 1)
})

test('a private folder is closed to others even if it was open before', async (t) => {
  const folder = join(await temporaryFolder(t), 'auth')
  await mkdir(folder, { mode: 0o755 })
  privateFolder(folder)
  assert.equal((await stat(folder)).mode & 0o777, 0o700)
})
