/** Writing safetensors: the same tensors give the same bytes, and reading restores them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { unicodeText } from "../../../test/support/unicode-text.js";
import { dtypeNames, dtypes, isFloat8 } from "../../ir/index.js";
import { countLimit, metadataName, type StoredTensor, tensorBytes, textLimit } from "./format.js";
import { readSafetensors } from "./read.js";
import { writeSafetensors } from "./write.js";

const text = fc.oneof(
  unicodeText(12),
  fc.constantFrom("__proto__", "constructor", "", "0", "10", "9", '"', "\\", "\u2028", "😀", "\uffee"),
);

const tensor: fc.Arbitrary<StoredTensor> = fc
  .record({
    name: text.filter((name) => name !== metadataName),
    dtype: fc.constantFrom(...dtypeNames),
    shape: fc.array(fc.nat(4), { maxLength: 4 }),
    seed: fc.nat(255),
  })
  .map(({ name, dtype, shape, seed }) => {
    const bytes = new Uint8Array(tensorBytes(dtype, shape)!).map((_, index) => index * 31 + seed);
    return { name, dtype, shape, bytes };
  });

const someTensors = fc.uniqueArray(tensor, { selector: ({ name }) => name, maxLength: 12 });
const someMetadata = fc.uniqueArray(fc.tuple(text, text), { selector: ([key]) => key, maxLength: 5 });

test("reading a written file restores its tensors", () => {
  fc.assert(
    fc.property(someTensors, someMetadata, (tensors, metadata) => {
      const read = readSafetensors(writeSafetensors(tensors, new Map(metadata)));
      assert.deepEqual(new Map(read.metadata), new Map(metadata));
      assert.equal(read.tensors.size, tensors.length);
      for (const { name, dtype, shape, bytes } of tensors) {
        const found = read.tensors.get(name) ?? assert.fail(`${name} is missing`);
        // 8-bit floats are read as bf16; the file's bytes are there too.
        const expected = isFloat8(dtype) ? "bf16" : dtype;
        assert.equal(found.stored !== undefined, isFloat8(dtype));
        assert.deepEqual([found.name, found.dtype, found.shape], [name, expected, shape]);
        sameBytes(found.stored?.bytes ?? found.bytes, bytes, name);
      }
    }),
    { numRuns: effort({ quick: 60, thorough: 1000 }) },
  );
});

test("the bytes do not depend on the order of tensors and metadata", () => {
  fc.assert(
    fc.property(someTensors, someMetadata, (tensors, metadata) => {
      const file = writeSafetensors(tensors, new Map(metadata));
      const turned = writeSafetensors(tensors.toReversed(), new Map(metadata.toReversed()));
      sameBytes(turned, file, "the file of the reversed lists");
    }),
    { numRuns: effort({ quick: 30, thorough: 100 }) },
  );
});

test("every tensor is aligned for its elements", () => {
  fc.assert(
    fc.property(someTensors, (tensors) => {
      for (const { name, dtype, bytes } of readSafetensors(writeSafetensors(tensors)).tensors.values()) {
        assert.equal(bytes.byteOffset % dtypes[dtype].bytes, 0, name);
      }
    }),
    { numRuns: effort({ quick: 30, thorough: 100 }) },
  );
});

test("a file of one tensor is these bytes", () => {
  const bytes = new Uint8Array([7, 8]);
  const file = writeSafetensors([{ name: "a", dtype: "u8", shape: [2], bytes }]);
  const header = '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   ';
  assert.equal(Buffer.from(file).toString("latin1"), `\x38${"\0".repeat(7)}${header}\x07\x08`);
});

test("a file without tensors is read back without tensors", () => {
  assert.equal(readSafetensors(writeSafetensors([])).tensors.size, 0);
});

const good: StoredTensor = { name: "a", dtype: "f32", shape: [2], bytes: new Uint8Array(8) };

test("a duplicate name is rejected", () => {
  rejects(
    "BAD_ARGUMENT",
    () => writeSafetensors([good, { ...good, dtype: "i32" }]),
    /Tensor "a" .* is a duplicate/,
  );
});

test("a byte count that does not match the shape is rejected", () => {
  rejects(
    "BAD_ARGUMENT",
    () => writeSafetensors([{ ...good, shape: [3] }]),
    /8 bytes, but f32 \[3\] needs 12/,
  );
});

test("an invalid shape is rejected", () => {
  for (const shape of [[-2], [0.5], [Number.NaN], [2 ** 53], [2 ** 40, 2 ** 40]]) {
    rejects("BAD_ARGUMENT", () => writeSafetensors([{ ...good, shape }]), /is not a valid shape/);
  }
});

test("the metadata's name, and texts that UTF-8 can't hold, are rejected", () => {
  rejects("BAD_ARGUMENT", () => writeSafetensors([{ ...good, name: metadataName }]), /reserves for metadata/);
  rejects(
    "BAD_ARGUMENT",
    () => writeSafetensors([{ ...good, name: "\ud800" }]),
    /name .* an unpaired surrogate/,
  );
  rejects("BAD_ARGUMENT", () => writeSafetensors([], new Map([["\udc00", ""]])), /key of the metadata/);
  rejects("BAD_ARGUMENT", () => writeSafetensors([], new Map([["k", "\ud800"]])), /value of "k"/);
});

test("a header longer than the format allows is rejected", () => {
  const metadata = new Map([["long", "x".repeat(100_000_000)]]);
  rejects("BAD_ARGUMENT", () => writeSafetensors([], metadata), /format allows 100000000/);
});

test("too many names and too many dimensions are rejected, because the reader rejects them", () => {
  const metadata = new Map(Array.from({ length: 100_001 }, (_, index) => [String(index), ""]));
  rejects("BAD_ARGUMENT", () => writeSafetensors([], metadata), /100001 texts of metadata .* 100000/);
  const none = new Uint8Array(0);
  const many = Array.from({ length: 100_001 }, (_, index) => ({
    ...good,
    name: String(index),
    shape: [0],
    bytes: none,
  }));
  rejects("BAD_ARGUMENT", () => writeSafetensors(many), /100001 tensors .* 100000/);
  const shape = Array(65).fill(1);
  rejects("BAD_ARGUMENT", () => writeSafetensors([{ ...good, shape }]), /65 dimensions; the maximum is 64/);
});

test("texts and shapes that are too long in all are rejected, because the reader rejects them", () => {
  const longest = "x".repeat(textLimit - metadataName.length - "long".length);
  const file = writeSafetensors([], new Map([["long", longest]]));
  assert.equal(readSafetensors(file).metadata.get("long")?.length, longest.length);
  const escaped = new Map([["long", `"${longest.slice(1)}`]]);
  rejects("BAD_ARGUMENT", () => writeSafetensors([], escaped), /16777217 bytes of names and metadata/);
  const shape = Array(64).fill(0);
  const wide = Array.from({ length: 1 + Math.floor(countLimit / 66) }, (_, index) => ({
    ...{ ...good, name: String(index), shape, bytes: new Uint8Array(0) },
  }));
  rejects("BAD_ARGUMENT", () => writeSafetensors(wide), /1600038 numbers in shapes and data_offsets/);
});

test("tensors and metadata may be objects with names as keys; an empty object gives an empty file", () => {
  const { name, ...rest } = good;
  const file = writeSafetensors({ [name]: rest }, { epoch: "3" });
  sameBytes(file, writeSafetensors([good], new Map([["epoch", "3"]])), "the file of an object");
  sameBytes(writeSafetensors({}), writeSafetensors([]), "the empty file");
});

test("arguments of another kind are rejected", () => {
  for (const tensors of [undefined, null, 7, "text", [undefined], [7], { a: null }, [{}]]) {
    rejects("BAD_ARGUMENT", () => writeSafetensors(tensors as never));
  }
  for (const change of [
    { name: 7 },
    { dtype: "I64" },
    { dtype: undefined },
    { shape: undefined },
    { shape: 2 },
    { bytes: undefined },
    { bytes: new Float32Array(2) },
  ]) {
    rejects("BAD_ARGUMENT", () => writeSafetensors([{ ...good, ...change } as never]));
  }
  for (const metadata of [null, 7, "text", [["a", "b"]], { a: 7 }, new Map([["a", 7]])]) {
    rejects("BAD_ARGUMENT", () => writeSafetensors([good], metadata as never));
  }
});
