/** The types of `device.mjs`, for tests in TypeScript. */

import type { BinaryNode, KeyPair, SignedKeyPair, proto } from 'baileys'

export interface Bundle {
  readonly registrationId: number
  readonly identity: Uint8Array
  readonly signedPreKey: {
    readonly keyId: number
    readonly public: Uint8Array
    readonly signature: Uint8Array
  }
  readonly preKey?: { readonly keyId: number; readonly public: Uint8Array } | undefined
}

export class Device {
  readonly identity: KeyPair
  readonly registrationId: number
  readonly signedPreKey: SignedKeyPair
  forget(): void
  close(): void
  bundle(): Promise<BinaryNode[]>
  begin(linked: string, keys: Bundle): Promise<void>
  knows(linked: string): Promise<boolean>
  encrypt(
    linked: string,
    message: proto.IMessage,
    attrs?: Record<string, string>,
  ): Promise<BinaryNode>
  encryptForGroup(
    linked: string,
    group: string,
    author: string,
    message: proto.IMessage,
    attrs?: Record<string, string>,
  ): Promise<[BinaryNode, ...BinaryNode[]]>
  decrypt(linked: string, group: string, enc: BinaryNode): Promise<proto.Message>
}
