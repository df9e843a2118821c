/** A writer of Protocol Buffers messages. Large bytes are read only when the message is written. */

/** Bytes that are read when they are written. */
export interface LazyBytes {
  readonly byteLength: number;
  chunks(): Iterable<Uint8Array>;
}

type Part = Uint8Array | LazyBytes;

const wireTypes = { varint: 0, lengthDelimited: 2, fixed32: 5 } as const;

const encoder = new TextEncoder();

export class Message {
  readonly #parts: Part[] = [];
  #byteLength = 0;

  get byteLength(): number {
    return this.#byteLength;
  }

  /** An integer of up to 64 bits; a negative one takes ten bytes. */
  integer(field: number, value: number): this {
    this.#tag(field, wireTypes.varint);
    return this.#append(varint(value));
  }

  float(field: number, value: number): this {
    this.#tag(field, wireTypes.fixed32);
    const bytes = new Uint8Array(4);
    new DataView(bytes.buffer).setFloat32(0, value, true);
    return this.#append(bytes);
  }

  text(field: number, value: string): this {
    return this.bytes(field, encoder.encode(value));
  }

  bytes(field: number, value: Part): this {
    this.#tag(field, wireTypes.lengthDelimited);
    this.#append(varint(value.byteLength));
    return this.#append(value);
  }

  message(field: number, value: Message): this {
    this.#tag(field, wireTypes.lengthDelimited);
    this.#append(varint(value.byteLength));
    for (const part of value.#parts) this.#append(part);
    return this;
  }

  /** The message in pieces. Small parts are joined. */
  *chunks(): Generator<Uint8Array> {
    let small: Uint8Array[] = [];
    for (const part of this.#parts) {
      if (part instanceof Uint8Array) {
        small.push(part);
        continue;
      }
      yield Buffer.concat(small);
      small = [];
      yield* part.chunks();
    }
    yield Buffer.concat(small);
  }

  #tag(field: number, wireType: number): void {
    this.#append(varint(field * 8 + wireType));
  }

  #append(part: Part): this {
    this.#parts.push(part);
    this.#byteLength += part.byteLength;
    return this;
  }
}

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  while (rest >= 128n) {
    bytes.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Uint8Array.from(bytes);
}
