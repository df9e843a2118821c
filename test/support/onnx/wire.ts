/** A strict reader of the Protocol Buffers wire format: every byte belongs to a field, and every field is declared. */

import assert from "node:assert/strict";

/** The kind of a field, and whether it may occur more than once. */
export type FieldKind = "integer" | "float" | "text" | "bytes" | Schema;
export interface Field {
  readonly name: string;
  readonly kind: FieldKind;
  readonly isRepeated?: boolean;
}
/** The fields of a message by number. */
export type Schema = Readonly<Record<number, Field>>;

export type Fields = Readonly<Record<string, readonly unknown[]>>;

const wireTypeOf = (kind: FieldKind): number => (kind === "integer" ? 0 : kind === "float" ? 5 : 2);

export function readMessage(bytes: Uint8Array, schema: Schema): Fields {
  const fields: Record<string, unknown[]> = {};
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      assert.ok(at < bytes.length && shift < 70n, `a number at byte ${at} has no end`);
      const byte = bytes[at++]!;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  };
  const integer = (): number => {
    const value = Number(varint());
    assert.ok(Number.isSafeInteger(value), `${value} is too large`);
    return value;
  };
  const content = (kind: FieldKind): unknown => {
    if (kind === "integer") return integer();
    if (kind === "float") {
      assert.ok(at + 4 <= bytes.length, "a float is cut off");
      at += 4;
      return view.getFloat32(at - 4, true);
    }
    const length = integer();
    assert.ok(length >= 0 && at + length <= bytes.length, `a field of ${length} bytes does not fit`);
    const part = bytes.subarray(at, at + length);
    at += length;
    if (kind === "bytes") return part;
    return kind === "text" ? new TextDecoder("utf-8", { fatal: true }).decode(part) : readMessage(part, kind);
  };
  while (at < bytes.length) {
    const tag = integer();
    const field = schema[tag >> 3];
    assert.ok(field, `field ${tag >> 3} is unknown`);
    assert.equal(tag & 7, wireTypeOf(field.kind), `the wire type of ${field.name}`);
    const list = fields[field.name] ?? [];
    assert.ok(field.isRepeated || list.length === 0, `${field.name} occurs twice`);
    fields[field.name] = list;
    list.push(content(field.kind));
  }
  return fields;
}
