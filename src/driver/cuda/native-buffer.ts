/** Native memory that never moves, for data that foreign functions read or write: results, structs, argument tables. */

import { loadKoffi } from "../foreign-functions.js";

export class NativeBuffer {
  /** Its native address. */
  readonly address: number;
  readonly view: DataView;
  readonly bytes: Uint8Array;
  readonly #memory: unknown;

  /** Zero-initialized. */
  constructor(size = 64) {
    const koffi = loadKoffi();
    this.#memory = koffi.alloc("uint8_t", size);
    this.address = Number(koffi.address(this.#memory));
    const buffer = koffi.view(this.#memory, size);
    this.view = new DataView(buffer);
    this.bytes = new Uint8Array(buffer);
    this.bytes.fill(0);
  }

  i32(offset = 0): number {
    return this.view.getInt32(offset, true);
  }

  /** A size, an address or a handle: all are below 2⁵³. */
  u64(offset = 0): number {
    return this.view.getUint32(offset, true) + 2 ** 32 * this.view.getUint32(offset + 4, true);
  }

  setU64(value: number, offset = 0): void {
    this.view.setUint32(offset, value >>> 0, true);
    this.view.setUint32(offset + 4, Math.floor(value / 2 ** 32), true);
  }

  free(): void {
    loadKoffi().free(this.#memory);
  }
}
