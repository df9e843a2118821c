/** Tensors of foreign dtypes: converted if nothing is lost, otherwise rejected one by one. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { fileWith } from "../../../test/support/safetensors-file.js";
import { viewElements, widenBf16 } from "../../ir/index.js";
import { readSafetensors } from "./read.js";

interface Part {
  readonly dtype: string;
  readonly shape?: readonly number[];
  readonly bytes: ArrayBufferView;
}

/** A file of these tensors in order, with any dtypes. */
function fileOf(parts: Readonly<Record<string, Part>>): Uint8Array {
  let offset = 0;
  const members = Object.entries(parts).map(([name, { dtype, shape, bytes }]) => {
    const [begin, end] = [offset, offset + bytes.byteLength];
    offset = end;
    return [name, { dtype, shape: shape ?? [bytes.byteLength], data_offsets: [begin, end] }];
  });
  const file = fileWith(JSON.stringify(Object.fromEntries(members)), offset);
  let at = file.length - offset;
  for (const { bytes } of Object.values(parts)) {
    file.set(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength), at);
    at += bytes.byteLength;
  }
  return file;
}

function read(parts: Readonly<Record<string, Part>>, name: string) {
  return readSafetensors(fileOf(parts)).tensors.get(name) ?? assert.fail(`no tensor ${name}`);
}

function integersOf(part: Part): readonly number[] {
  // One byte first: the elements of a file need not be aligned.
  const tensor = read({ odd: { dtype: "U8", bytes: Uint8Array.of(1) }, a: part }, "a");
  assert.equal(tensor.dtype, "i32");
  return [...viewElements("i32", tensor.bytes)];
}

const high = 2 ** 31 - 1;

test("integers of every width become i32, to the ends of its range", () => {
  const unsigned = BigUint64Array.of(0n, BigInt(high));
  assert.deepEqual(integersOf({ dtype: "U64", shape: [2], bytes: unsigned }), [0, high]);
  assert.deepEqual(integersOf({ dtype: "U32", shape: [2], bytes: Uint32Array.of(0, high) }), [0, high]);
  const short = Int16Array.of(-32768, 32767);
  assert.deepEqual(integersOf({ dtype: "I16", shape: [2], bytes: short }), [-32768, 32767]);
  assert.deepEqual(integersOf({ dtype: "U16", shape: [1], bytes: Uint16Array.of(65535) }), [65535]);
  assert.deepEqual(integersOf({ dtype: "U64", shape: [0], bytes: new BigUint64Array(0) }), []);
});

test("I64 and I8 are dtypes of Holdfast: nothing is converted", () => {
  const wide = BigInt64Array.of(2n ** 60n, -1n);
  const ids = read(
    { odd: { dtype: "U8", bytes: Uint8Array.of(1) }, ids: { dtype: "I64", shape: [2], bytes: wide } },
    "ids",
  );
  assert.deepEqual([ids.dtype, viewElements("i64", ids.bytes)], ["i64", wide]);
  const small = read({ a: { dtype: "I8", shape: [2], bytes: Int8Array.of(-128, 127) } }, "a");
  assert.deepEqual([small.dtype, viewElements("i8", small.bytes)], ["i8", Int8Array.of(-128, 127)]);
});

test("an integer that i32 can't hold is rejected with its tensor, its index and its value", () => {
  for (const [dtype, bytes, value] of [
    ["U64", BigUint64Array.of(7n, 2n ** 64n - 1n), "18446744073709551615"],
    ["U32", Uint32Array.of(7, 2 ** 32 - 1), "4294967295"],
  ] as const) {
    const ids = read({ ids: { dtype, shape: [2], bytes } }, "ids");
    const message = new RegExp(`"ids" has the dtype "${dtype}", and its element 1 is ${value}.*skip`);
    rejects("BAD_DTYPE", () => ids.bytes, message);
  }
});

test("every 8-bit float is read exactly", () => {
  const all = Uint8Array.from({ length: 256 }, (_, bits) => bits);
  const valuesOf = (dtype: string): Float32Array => {
    const tensor = read({ a: { dtype, bytes: all } }, "a");
    assert.equal(tensor.dtype, "bf16");
    return widenBf16(viewElements("bf16", tensor.bytes));
  };
  // An E5M2 is the upper half of an f16, so the f16 conversion gives the expected value.
  const halves = new Float64Array(256).map((_, bits) => {
    const [exponent, mantissa] = [(bits >> 2) & 31, bits & 3];
    const size =
      exponent === 31
        ? mantissa
          ? Number.NaN
          : Infinity
        : exponent
          ? (1 + mantissa / 4) * 2 ** (exponent - 15)
          : mantissa * 2 ** -16;
    return bits < 128 ? size : -size;
  });
  assert.deepEqual([...valuesOf("F8_E5M2")], [...halves]);
  const small = valuesOf("F8_E4M3");
  // The smallest subnormal, the smallest normal, one, the largest, and the only NaN.
  assert.deepEqual(
    [0x01, 0x07, 0x08, 0x38, 0x39, 0x7e, 0xfe, 0x7f, 0xff, 0x80].map((bits) => small[bits]),
    [2 ** -9, 7 * 2 ** -9, 2 ** -6, 1, 1.125, 448, -448, Number.NaN, Number.NaN, -0],
  );
});

test("a tensor that can't be converted leaves the others readable, and reading it is an error with its name", () => {
  const file = fileOf({
    packed: { dtype: "F4", shape: [6], bytes: new Uint8Array(3) },
    proto: { dtype: "__proto__", shape: [1], bytes: new Uint8Array(1) },
    big: { dtype: "U64", shape: [1], bytes: BigUint64Array.of(2n ** 40n) },
    good: { dtype: "F32", shape: [1], bytes: Float32Array.of(3) },
  });
  const { tensors } = readSafetensors(file);
  assert.deepEqual([...tensors.keys()], ["packed", "proto", "big", "good"]);
  assert.equal(viewElements("f32", tensors.get("good")!.bytes)[0], 3);
  const packed = tensors.get("packed")!;
  assert.deepEqual([packed.shape, packed.stored], [[6], { dtype: "F4", bytes: new Uint8Array(3) }]);
  rejects("BAD_DTYPE", () => packed.bytes, /"packed" has the dtype "F4", which is not supported/);
  rejects("BAD_DTYPE", () => packed.dtype, /"packed"/);
  rejects("BAD_DTYPE", () => tensors.get("proto")!.bytes, /"__proto__"/);
});

test("tensors are skipped by name or by a function", () => {
  const part = { dtype: "U8", bytes: Uint8Array.of(1) };
  const file = fileOf({ a: part, "a.ids": part, b: part });
  const namesOf = (skip: readonly string[] | ((name: string) => boolean)) => [
    ...readSafetensors(file, { skip }).tensors.keys(),
  ];
  assert.deepEqual(namesOf(["a", "none"]), ["a.ids", "b"]);
  assert.deepEqual(
    namesOf((name) => name.endsWith(".ids")),
    ["a", "b"],
  );
  rejects("BAD_ARGUMENT", () => namesOf("a" as never), /skip takes a list/);
});

test("arguments other than bytes are rejected", () => {
  for (const bytes of [undefined, "model.safetensors", new ArrayBuffer(8), [1, 2]]) {
    rejects("BAD_ARGUMENT", () => readSafetensors(bytes as never), /as a Uint8Array/);
  }
});
