/**
 * Files that are whole or not there, whatever happens while they are written.
 *
 * What always holds: when `writeWhole` has resolved, the content is on disk under its name; when it
 * has rejected, or the process was killed inside, the file is as it was. Files are 0600 and folders
 * 0700, because they hold keys and messages.
 */

import { randomBytes } from 'node:crypto'
import { chmod, link, mkdir, open, readdir, rename, unlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

const TEMPORARY = '.tmp'

/** Make the folder, if need be with those above it, and close it to others. */
export async function privateFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await chmod(folder, 0o700)
}

/**
 * Write a file as a whole: a temporary file, fsync, rename, fsync of the folder.
 *
 * With `keep`, what was there before stays under that path; there is no moment without the file.
 */
export async function writeWhole(
  path: string,
  content: string | Uint8Array,
  keep?: string,
): Promise<void> {
  const temporary = temporaryFor(path)
  try {
    await writeSynced(temporary, content)
    if (keep !== undefined) await keepAs(path, keep)
    await rename(temporary, path)
  } catch (error) {
    await removeIfThere(temporary)
    throw error
  }
  await syncFolder(dirname(path))
}

/** Make what happened to the names in a folder last. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Give a broken file or folder another name, for people to look at; returns that name's path. */
export async function setAside(path: string, why: string, now: number): Promise<string> {
  const stamp = new Date(now).toISOString().replaceAll(/[-:]|\.\d+/g, '')
  const aside = `${path}.${why}-${stamp}-${randomBytes(3).toString('hex')}`
  await rename(path, aside)
  await syncFolder(dirname(path))
  return aside
}

/** Remove what killed writers left in a folder. Nobody may be writing into it. */
export async function sweep(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name.startsWith('.') && name.endsWith(TEMPORARY)) await removeIfThere(join(folder, name))
  }
}

/** Remove a file; that there is none is fine. */
export async function removeIfThere(path: string): Promise<void> {
  try {
    await unlink(path)
  } catch (error) {
    if (!isMissing(error)) throw error
  }
}

/** Whether a file operation failed because there is no such file. */
export function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}

function temporaryFor(path: string): string {
  return join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}${TEMPORARY}`)
}

async function writeSynced(path: string, content: string | Uint8Array): Promise<void> {
  const handle = await open(path, 'wx', 0o600)
  try {
    await handle.writeFile(content)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Give the file a second name in place of what had it; the first one stays. */
async function keepAs(path: string, keep: string): Promise<void> {
  const temporary = temporaryFor(keep)
  try {
    await link(path, temporary)
  } catch (error) {
    if (isMissing(error)) return
    throw error
  }
  try {
    await rename(temporary, keep)
  } catch (error) {
    await removeIfThere(temporary)
    throw error
  }
}
