/**
 * Writes plain values as Python pickles (protocol 4), with common opcodes only. PyTorch's memory viewer has its own
 * reader, which expects lists in batches and supports no other opcodes.
 */

import { HoldfastError } from "../../errors/index.js";

/** Supported values: an array becomes a list, `PickleTuple` a tuple, a whole number an int, another number a float. */
export type PickleValue =
  | null
  | boolean
  | number
  | string
  | PickleTuple
  | readonly PickleValue[]
  | { readonly [key: string]: PickleValue };

export class PickleTuple {
  readonly items: readonly PickleValue[];

  constructor(...items: readonly PickleValue[]) {
    this.items = items;
  }
}

const opcodes = {
  ...{ protocol: 0x80, stop: 0x2e, mark: 0x28, none: 0x4e, true: 0x88, false: 0x89 },
  ...{ byte: 0x4b, twoBytes: 0x4d, int32: 0x4a, long: 0x8a, float: 0x47, shortText: 0x8c, text: 0x58 },
  ...{ emptyList: 0x5d, appends: 0x65, emptyDict: 0x7d, setItems: 0x75, emptyTuple: 0x29, tuple: 0x74 },
} as const;

/** The batch length of Python's own writer. */
const batch = 1000;

export function pickle(value: PickleValue): Uint8Array {
  const writer = new PickleWriter();
  writer.bytes(opcodes.protocol, 4);
  writer.value(value);
  writer.bytes(opcodes.stop);
  return writer.finish();
}

class PickleWriter {
  #buffer = Buffer.alloc(64 * 1024);
  #length = 0;

  finish(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }

  bytes(...bytes: readonly number[]): void {
    this.#put(bytes.length, (buffer, at) => buffer.set(bytes, at));
  }

  value(value: PickleValue): void {
    if (value === null) this.bytes(opcodes.none);
    else if (typeof value === "boolean") this.bytes(value ? opcodes.true : opcodes.false);
    else if (typeof value === "number") this.#number(value);
    else if (typeof value === "string") this.#text(value);
    else if (value instanceof PickleTuple) this.#tuple(value);
    else if (Array.isArray(value)) this.#list(value);
    else this.#dict(Object.entries(value));
  }

  #number(value: number): void {
    if (!Number.isInteger(value)) {
      this.bytes(opcodes.float);
      this.#put(8, (buffer, at) => buffer.writeDoubleBE(value, at));
    } else if (value >= 0 && value < 2 ** 8) this.bytes(opcodes.byte, value);
    else if (value >= 0 && value < 2 ** 16)
      this.bytes(opcodes.twoBytes, value % 256, Math.floor(value / 256));
    else if (value >= -(2 ** 31) && value < 2 ** 31) {
      this.bytes(opcodes.int32);
      this.#put(4, (buffer, at) => buffer.writeInt32LE(value, at));
    } else if (Number.isSafeInteger(value)) {
      // Two's complement: eight bytes hold every safe integer.
      this.bytes(opcodes.long, 8);
      this.#put(8, (buffer, at) => buffer.writeBigInt64LE(BigInt(value), at));
    } else {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${value} is not a safe integer. A pickle can store up to 2^53 − 1.`,
        { numbers: { value } },
      );
    }
  }

  #text(value: string): void {
    const size = Buffer.byteLength(value);
    if (size < 2 ** 8) this.bytes(opcodes.shortText, size);
    else {
      this.bytes(opcodes.text);
      this.#put(4, (buffer, at) => buffer.writeUInt32LE(size, at));
    }
    this.#put(size, (buffer, at) => buffer.write(value, at, "utf8"));
  }

  #tuple({ items }: PickleTuple): void {
    if (items.length === 0) {
      this.bytes(opcodes.emptyTuple);
      return;
    }
    this.bytes(opcodes.mark);
    for (const item of items) this.value(item);
    this.bytes(opcodes.tuple);
  }

  #list(items: readonly PickleValue[]): void {
    this.bytes(opcodes.emptyList);
    for (let from = 0; from < items.length; from += batch) {
      this.bytes(opcodes.mark);
      for (const item of items.slice(from, from + batch)) this.value(item);
      this.bytes(opcodes.appends);
    }
  }

  #dict(entries: readonly (readonly [string, PickleValue])[]): void {
    this.bytes(opcodes.emptyDict);
    for (let from = 0; from < entries.length; from += batch) {
      this.bytes(opcodes.mark);
      for (const [key, value] of entries.slice(from, from + batch)) {
        this.value(key);
        this.value(value);
      }
      this.bytes(opcodes.setItems);
    }
  }

  /** Grows the buffer first, which may replace it. */
  #put(size: number, write: (buffer: Buffer, at: number) => void): void {
    const at = this.#length;
    this.#length += size;
    if (this.#length > this.#buffer.length) {
      const larger = Buffer.alloc(Math.max(this.#length, 2 * this.#buffer.length));
      this.#buffer.copy(larger, 0, 0, at);
      this.#buffer = larger;
    }
    write(this.#buffer, at);
  }
}
