/** Typed views of raw bytes: the right array type, and no unnecessary copy. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { dtypeNames, dtypes } from "./dtypes.js";
import { viewElements } from "./elements.js";

test("each dtype has an array type with elements of its size", () => {
  for (const dtype of dtypeNames) {
    assert.equal(dtypes[dtype].array.BYTES_PER_ELEMENT, dtypes[dtype].bytes, dtype);
  }
});

test("aligned bytes are viewed in place, others are copied, and both give the same elements", () => {
  const memory = Uint8Array.from({ length: 64 }, (_, index) => index * 7);
  for (const dtype of dtypeNames) {
    for (let offset = 0; offset < 16; offset++) {
      const bytes = memory.subarray(offset, offset + 32);
      const elements = viewElements(dtype, bytes);
      assert.ok(elements instanceof dtypes[dtype].array);
      assert.equal(elements.length, 32 / dtypes[dtype].bytes);
      assert.equal(
        elements.buffer === memory.buffer,
        offset % dtypes[dtype].bytes === 0,
        `${dtype} at ${offset}`,
      );
      sameBytes(elements, bytes, `${dtype} at ${offset}`);
    }
  }
});

test("zero bytes are zero elements", () => {
  for (const dtype of dtypeNames) assert.equal(viewElements(dtype, new Uint8Array(0)).length, 0);
});

test("a byte count that is not a whole number of elements is rejected", () => {
  rejects("BAD_ARGUMENT", () => viewElements("f64", new Uint8Array(12)), /12 bytes .* f64 .* multiple of 8/);
});
