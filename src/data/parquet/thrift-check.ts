/**
 * Checks a Thrift compact struct before hyparquet parses it. hyparquet trusts every length: a list of 2³¹ structs in ten bytes makes
 * it allocate until V8 aborts. A struct that passes needs memory in proportion to its bytes.
 */

/** Max. nesting; Parquet's metadata has fewer than ten levels. */
const maxDepth = 24;
/** Max. elements and fields, nested ones included; a file with 1,000 columns and 1,000 row groups has about 20 M. */
const maxValues = 32_000_000;
/** Row groups of a file, or columns of a row group. */
const maxListLength = 1_000_000;

const stop = 0;
const list = 9;
const struct = 12;

/** Throws if a struct does not end before `end`, or if a length exceeds its bytes. Returns the offset after it. */
export function checkThrift(bytes: Uint8Array, offset: number, end: number): number {
  const check = new ThriftCheck(bytes, offset, end);
  check.struct(0);
  return check.offset;
}

class ThriftCheck {
  offset: number;
  readonly #bytes: Uint8Array;
  readonly #end: number;
  #values = 0;

  constructor(bytes: Uint8Array, offset: number, end: number) {
    this.#bytes = bytes;
    this.offset = offset;
    this.#end = Math.min(end, bytes.length);
  }

  struct(depth: number): void {
    if (depth > maxDepth) throw new RangeError(`metadata is nested more than ${maxDepth} levels deep`);
    for (;;) {
      const head = this.#byte();
      const type = head & 0x0f;
      if (type === stop) return;
      if (head >> 4 === 0) this.#varint(5);
      this.#value(type, depth, false);
    }
  }

  #value(type: number, depth: number, isInList: boolean): void {
    if (++this.#values > maxValues) throw new RangeError(`metadata has more than ${maxValues} values`);
    switch (type) {
      case 1:
      case 2:
        // A field stores a boolean in its type; a list has one byte per boolean.
        if (isInList) this.#skip(1);
        return;
      case 3:
        this.#skip(1);
        return;
      case 4:
      case 5:
        this.#varint(5);
        return;
      case 6:
        this.#varint(10);
        return;
      case 7:
        this.#skip(8);
        return;
      case 8:
        this.#skip(this.#varint(5));
        return;
      case list:
        this.#list(depth);
        return;
      case struct:
        this.struct(depth + 1);
        return;
      default:
        throw new RangeError(`metadata has a value of the unknown type ${type}`);
    }
  }

  #list(depth: number): void {
    const head = this.#byte();
    const short = head >> 4;
    const length = short === 15 ? this.#varint(5) : short;
    // Every element has at least one byte.
    if (!(length >= 0 && length <= Math.min(maxListLength, this.#end - this.offset)))
      throw new RangeError(`metadata has a list of ${length} elements in ${this.#end - this.offset} bytes`);
    if (depth >= maxDepth) throw new RangeError(`metadata is nested more than ${maxDepth} levels deep`);
    for (let element = 0; element < length; element++) this.#value(head & 0x0f, depth + 1, true);
  }

  /** Like hyparquet: uses the low 32 bits, with sign. */
  #varint(maxBytes: number): number {
    let value = 0;
    for (let index = 0; index < maxBytes; index++) {
      const byte = this.#byte();
      value |= (byte & 0x7f) << (7 * index);
      if (byte < 0x80) return value;
    }
    throw new RangeError(`metadata has a number of more than ${maxBytes} bytes`);
  }

  #byte(): number {
    const byte = this.offset < this.#end ? this.#bytes[this.offset] : undefined;
    if (byte === undefined) throw new RangeError("metadata is cut off");
    this.offset++;
    return byte;
  }

  #skip(length: number): void {
    if (!(length >= 0 && length <= this.#end - this.offset))
      throw new RangeError(
        `metadata has a value of ${length} bytes, but ${this.#end - this.offset} are left`,
      );
    this.offset += length;
  }
}
