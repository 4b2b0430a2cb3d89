import assert from 'node:assert/strict'
import { appendFile, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { AppendLog, type LogState, privateFolder, setAside, writeWhole } from '../src/disk.js'
import { FakeClock, recordedLog, temporaryFolder } from './parts.js'

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

type Pair = readonly [key: string, value: string]

class Values implements LogState<Pair> {
  readonly map = new Map<string, string>()

  apply([key, value]: Pair): void {
    this.map.set(key, value)
  }

  live(): Iterable<Pair> {
    return this.map
  }

  encode(pair: Pair): string {
    return JSON.stringify(pair)
  }

  decode(line: string): Pair {
    const value: unknown = JSON.parse(line)
    if (!Array.isArray(value)) throw new Error('not a pair')
    return [String(value[0]), String(value[1])]
  }
}

interface Opened {
  readonly log: AppendLog<Pair>
  readonly values: Values
  readonly said: readonly string[]
}

function open(t: TestContext, path: string): Opened {
  const values = new Values()
  const { log: words, lines } = recordedLog()
  const log = new AppendLog(path, values, new FakeClock(), words)
  t.after(() => {
    log.close()
  })
  return { log, values, said: lines }
}

test('what was appended is there after opening again', async (t) => {
  const path = join(await temporaryFolder(t), 'keys.jsonl')
  const { log, values } = open(t, path)
  log.append(['a', '1'])
  log.append(['b', '2'])
  log.append(['a', '3'])
  assert.deepEqual([...values.map].sort(), [...open(t, path).values.map].sort())
  assert.deepEqual(
    [...values.map],
    [
      ...new Map([
        ['a', '3'],
        ['b', '2'],
      ]),
    ],
  )
  assert.equal((await stat(path)).mode & 0o777, 0o600)
})

for (const torn of ['["c","4', '["c","4"]', 'garbage\n', '\0\0\0\0\n']) {
  test(`a torn last line ${JSON.stringify(torn)} is dropped and written over`, async (t) => {
    const path = join(await temporaryFolder(t), 'keys.jsonl')
    await writeFile(path, '["a","1"]\n' + torn)
    const { log, values, said } = open(t, path)
    assert.deepEqual([...values.map], [['a', '1']])
    log.append(['b', '2'])
    assert.equal(await readFile(path, 'utf8'), '["a","1"]\n["b","2"]\n')
    assert.deepEqual(
      said.map((each) => each.split(':')[0]),
      ['info'],
    )
  })
}

test('a file with a broken line in the middle is set aside and the rest is saved', async (t) => {
  const folder = await temporaryFolder(t)
  const damaged = Buffer.from('["a","1"]\n["b","\xff"]\n{}\n["c","3"]\n["d","4', 'latin1')
  await writeFile(join(folder, 'keys.jsonl'), damaged)
  const { log, values, said } = open(t, join(folder, 'keys.jsonl'))
  assert.deepEqual(
    [...values.map],
    [
      ['a', '1'],
      ['c', '3'],
    ],
  )
  assert.equal(said.length, 1)
  assert.match(said[0] ?? '', /^warning: .*keys\.jsonl has 2 damaged line\(s\)/)
  log.append(['e', '5'])
  const text = await readFile(join(folder, 'keys.jsonl'), 'utf8')
  assert.equal(text, '["a","1"]\n["c","3"]\n["e","5"]\n')
  const aside = (await readdir(folder)).find((name) => name.includes('.corrupt-')) ?? ''
  assert.deepEqual(await readFile(join(folder, aside)), damaged)
})

test('the file stays in proportion to what it adds up to', async (t) => {
  const path = join(await temporaryFolder(t), 'keys.jsonl')
  const { log, values } = open(t, path)
  const long = 'x'.repeat(100_000)
  for (let i = 0; i < 25; i++) log.append(['a', `${i}${long}`])
  assert.ok((await stat(path)).size < 1_200_000)
  const again = open(t, path)
  assert.deepEqual([...again.values.map], [...values.map])
})

test('a state that is large by itself is not written anew each time', async (t) => {
  const path = join(await temporaryFolder(t), 'keys.jsonl')
  const { log } = open(t, path)
  const long = 'x'.repeat(400_000)
  for (let i = 0; i < 4; i++) log.append([`key ${i}`, long])
  const before = (await stat(path)).ino
  for (let i = 0; i < 4; i++) log.append(['small', `${i}`])
  assert.equal((await stat(path)).ino, before)
})

test('a record that did not reach the disk is not applied, and the next one heals', async (t) => {
  const folder = join(await temporaryFolder(t), 'auth')
  await mkdir(folder)
  const path = join(folder, 'keys.jsonl')
  const first = open(t, path)
  first.log.append(['a', '1'])
  first.log.close()

  // With no folder there is no file to append to, until it is back.
  await rename(folder, `${folder}-gone`)
  assert.throws(() => {
    first.log.append(['b', '2'])
  })
  assert.deepEqual([...first.values.map], [['a', '1']])
  await rename(`${folder}-gone`, folder)
  await appendFile(path, '["half of a rec')
  first.log.append(['c', '3'])
  assert.equal(await readFile(path, 'utf8'), '["a","1"]\n["c","3"]\n')
})

test('a log that cannot be made anew still takes what is appended', async (t) => {
  const folder = join(await temporaryFolder(t), 'auth')
  await mkdir(folder)
  const path = join(folder, 'keys.jsonl')
  const { log, values, said } = open(t, path)
  const long = 'x'.repeat(600_000)
  log.append(['a', long])
  // Nothing can take the name of a folder that is not empty.
  await rm(path)
  await mkdir(join(path, 'full'), { recursive: true })
  log.append(['a', `1${long}`])
  assert.equal(values.map.get('a'), `1${long}`)
  assert.match(said.join(), /could not be rewritten/)
})
