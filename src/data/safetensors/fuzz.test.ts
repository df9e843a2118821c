/** Altered files: any change of a valid file is read within its bounds or rejected as a bad file. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { fileWith } from "../../../test/support/safetensors-file.js";
import { HoldfastError } from "../../errors/index.js";
import { type SafetensorsFile, type StoredTensor, tensorBytes } from "./format.js";
import { readSafetensors } from "./read.js";
import { writeSafetensors } from "./write.js";

const tensors: readonly StoredTensor[] = [
  { name: "weight", dtype: "f32", shape: [2, 3], bytes: new Uint8Array(24).fill(1) },
  { name: "half", dtype: "bf16", shape: [5], bytes: new Uint8Array(10).fill(2) },
  { name: "mask", dtype: "bool", shape: [1, 7], bytes: new Uint8Array(7).fill(1) },
  { name: "none", dtype: "i32", shape: [0], bytes: new Uint8Array(0) },
];
const good = writeSafetensors(tensors, new Map([["made by", "a test"]]));
const headerBytes = Number(new DataView(good.buffer).getBigUint64(0, true));
const headerText = Buffer.from(good.subarray(8, 8 + headerBytes)).toString();

type Change = (file: Uint8Array) => Uint8Array;

const position = fc.nat(good.length - 1);

const flip: fc.Arbitrary<Change> = fc.tuple(position, fc.nat(7)).map(([at, bit]) => (file) => {
  const changed = file.slice();
  if (at < changed.length) changed[at]! ^= 1 << bit;
  return changed;
});

const cut: fc.Arbitrary<Change> = position.map((at) => (file) => file.slice(0, at));

const extend: fc.Arbitrary<Change> = fc
  .uint8Array({ minLength: 1, maxLength: 20 })
  .map((more) => (file) => Uint8Array.from([...file, ...more]));

const move: fc.Arbitrary<Change> = fc
  .tuple(position, position, position)
  .map(([from, to, target]) => (file) => {
    const changed = file.slice();
    if (target < changed.length) changed.copyWithin(target, Math.min(from, to), Math.max(from, to));
    return changed;
  });

const headerFragments = [
  ...'{}[]:,"\\-0179. \u0000',
  "1e9",
  "-1",
  "0.5",
  "9007199254740993",
  "null",
  "true",
  '"__proto__"',
  '"__metadata__"',
  '"dtype":"U8"',
  '"I64"',
  "[0,24]",
  "[[[[[[",
  "\ud83d\ude00",
];

/** The file with another header of the right length, so that the later checks run. */
function withHeader(text: string): Change {
  return (file) => {
    const data = file.subarray(8 + headerBytes);
    const changed = fileWith(text, data.length);
    changed.set(data, changed.length - data.length);
    return changed;
  };
}

const edit: fc.Arbitrary<Change> = fc
  .tuple(fc.nat(headerText.length), fc.nat(12), fc.constantFrom(...headerFragments))
  .map(([at, removed, added]) =>
    withHeader(headerText.slice(0, at) + added + headerText.slice(at + removed)),
  );

/** Changes one number of the header, which stays valid JSON: wrong shapes and offsets. */
const renumber: fc.Arbitrary<Change> = fc
  .tuple(fc.nat(20), fc.oneof(fc.nat(60), fc.maxSafeInteger()))
  .map(([which, value]) => {
    let count = 0;
    const replace = (digits: string) => (count++ === which ? String(value) : digits);
    return withHeader(headerText.replace(/(?<=[[,])\d+/g, replace));
  });

/** Moves one tensor and keeps its size: holes, overlaps, offsets outside the file. */
const shift: fc.Arbitrary<Change> = fc
  .tuple(fc.nat(tensors.length - 1), fc.integer({ min: -24, max: 24 }))
  .map(([which, by]) => {
    let count = 0;
    const replace = (all: string, begin: string, end: string) =>
      count++ === which ? `[${Number(begin) + by},${Number(end) + by}]` : all;
    return withHeader(headerText.replace(/(?<="data_offsets":)\[(\d+),(\d+)\]/g, replace));
  });

/** Edits of the header start from the valid one, so they come first. */
const altered = fc
  .tuple(
    fc.oneof(edit, renumber, shift, flip, cut, extend, move),
    fc.array(fc.oneof(flip, cut, extend, move), { maxLength: 2 }),
  )
  .map(([first, rest]) => rest.reduce((file, change) => change(file), first(good)));

/** An error message without the names and figures of its case. */
function kindOf(message: string): string {
  return message.replaceAll(/found .*?, expected|\d+|"(?:[^"\\]|\\.)*"/gs, "…");
}

/** Reads the file and checks the result. Returns "read", or the kind of rejection. */
function check(read: (bytes: Uint8Array) => SafetensorsFile, file: Uint8Array): string {
  let result: SafetensorsFile;
  try {
    result = read(file);
  } catch (error) {
    if (error instanceof HoldfastError && error.code === "BAD_FILE") return kindOf(error.message);
    throw error;
  }
  let total = 0;
  for (const [name, tensor] of result.tensors) {
    const { shape, stored } = tensor;
    const bytes = stored?.bytes ?? tensor.bytes;
    assert.equal(tensor.name, name);
    if (!stored) assert.equal(bytes.length, tensorBytes(tensor.dtype, shape));
    assert.ok(bytes.byteOffset >= file.byteOffset + 8);
    assert.ok(bytes.byteOffset + bytes.length <= file.byteOffset + file.length);
    total += bytes.length;
  }
  const headerLength = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  assert.equal(total, file.length - 8 - headerLength);
  return "read";
}

test("an altered file is read within its bounds or rejected as a bad file", (t) => {
  const files = effort({ quick: 6000, thorough: 20_000 });
  const outcomes = new Map<string, number>();
  fc.assert(
    fc.property(altered, (file) => {
      const outcome = check(readSafetensors, file);
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    }),
    { numRuns: files },
  );
  // A run with few kinds of rejection, or without a file that was read, would prove little.
  const kinds = [...outcomes.keys()].join("\n");
  t.diagnostic(`${outcomes.size} kinds of outcome; ${outcomes.get("read")} of ${files} files were read`);
  assert.ok(outcomes.size > 25, kinds);
  for (const rare of [/reaches to/, /nothing covers/, /more bytes than can be counted/, /^read$/m]) {
    assert.match(kinds, rare);
  }
});

test("random bytes and random headers are rejected", () => {
  const bytes = fc.uint8Array({ maxLength: 300 });
  const headers = fc.json({ maxDepth: 4 }).map((json) => fileWith(json, 8));
  fc.assert(
    fc.property(fc.oneof(bytes, headers), (file) => void check(readSafetensors, file)),
    { numRuns: effort({ quick: 1500, thorough: 5000 }) },
  );
});

test("the test fails for a reader that trusts its file", () => {
  const trusting = (file: Uint8Array): SafetensorsFile => {
    const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
    const header = JSON.parse(Buffer.from(file.subarray(8, 8 + length)).toString());
    const entries = Object.entries<{ shape: number[]; data_offsets: [number, number] }>(header).map(
      ([name, { shape, data_offsets }]) => {
        const bytes = file.subarray(8 + length + data_offsets?.[0], 8 + length + data_offsets?.[1]);
        return [name, { name, dtype: "u8" as const, shape, bytes }] as const;
      },
    );
    return { tensors: new Map(entries), metadata: new Map() };
  };
  assert.throws(() => fc.assert(fc.property(altered, (file) => void check(trusting, file))));
});
