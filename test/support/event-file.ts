/**
 * A strict reader of TensorBoard's event files: checksums, lengths, and each field by its number and wire
 * type.
 */

import assert from "node:assert/strict";

export interface ReadEvent {
  readonly wallTime: number;
  readonly step: number;
  readonly fileVersion?: string;
  readonly tag?: string;
  /** A float32. */
  readonly value?: number;
}

export function readEventFile(bytes: Uint8Array): ReadEvent[] {
  const data = Buffer.from(bytes);
  const events: ReadEvent[] = [];
  let at = 0;
  while (at < data.length) {
    const length = Number(data.readBigUInt64LE(at));
    assert.equal(data.readUInt32LE(at + 8), masked(data.subarray(at, at + 8)), `the length at ${at}`);
    const message = data.subarray(at + 12, at + 12 + length);
    assert.equal(message.length, length, "a record that ends too soon");
    assert.equal(data.readUInt32LE(at + 12 + length), masked(message), `the message at ${at}`);
    events.push(eventOf(message));
    at += 16 + length;
  }
  return events;
}

function eventOf(message: Buffer): ReadEvent {
  let event: ReadEvent = { wallTime: Number.NaN, step: 0 };
  for (const { field, wireType, bytes, number } of fieldsOf(message)) {
    const key = `${field}/${wireType}`;
    if (key === "1/1") event = { ...event, wallTime: bytes.readDoubleLE() };
    else if (key === "2/0") event = { ...event, step: number };
    else if (key === "3/2") event = { ...event, fileVersion: bytes.toString("utf8") };
    else if (key === "5/2") event = { ...event, ...summaryOf(bytes) };
    else assert.fail(`field ${key} of an Event`);
  }
  assert.ok(Number.isFinite(event.wallTime), "an Event without a time");
  return event;
}

function summaryOf(summary: Buffer): Pick<ReadEvent, "tag" | "value"> {
  const values = fieldsOf(summary);
  assert.deepEqual(
    values.map(({ field, wireType }) => [field, wireType]),
    [[1, 2]],
    "one value in a Summary",
  );
  const fields = fieldsOf(values[0]!.bytes);
  assert.deepEqual(
    fields.map(({ field, wireType }) => [field, wireType]),
    [
      [1, 2],
      [2, 5],
    ],
    "a tag and a simple_value",
  );
  return { tag: fields[0]!.bytes.toString("utf8"), value: fields[1]!.bytes.readFloatLE() };
}

interface Field {
  readonly field: number;
  readonly wireType: number;
  readonly bytes: Buffer;
  readonly number: number;
}

function fieldsOf(message: Buffer): Field[] {
  const fields: Field[] = [];
  let at = 0;
  const varint = (): number => {
    let [value, factor] = [0, 1];
    for (;;) {
      const byte = message[at++];
      assert.ok(byte !== undefined, "a number that ends too soon");
      value += (byte & 0x7f) * factor;
      factor *= 128;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const key = varint();
    const wireType = key & 7;
    const number = wireType === 0 || wireType === 2 ? varint() : 0;
    const size =
      wireType === 0 ? 0 : wireType === 1 ? 8 : wireType === 2 ? number : wireType === 5 ? 4 : Number.NaN;
    assert.ok(at + size <= message.length, `field ${key >> 3} with way ${wireType}`);
    fields.push({ field: key >> 3, wireType, number, bytes: message.subarray(at, at + size) });
    at += size;
  }
  return fields;
}

/** Bit by bit, and so independent of the table that writes them. */
function masked(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (0x82f63b78 & -(crc & 1));
  }
  crc = (crc ^ 0xffffffff) >>> 0;
  const rotated = Math.floor(crc / 2 ** 15) + (crc % 2 ** 15) * 2 ** 17;
  return (rotated + 0xa282ead8) % 2 ** 32;
}
