/**
 * Compares arrays by their bytes and names the first difference. `assert.deepEqual` would print a diff of
 * thousands of lines, and takes gigabytes for it since Node 22.
 */

import assert from "node:assert/strict";

export function sameBytes(actual: ArrayBufferView, expected: ArrayBufferView, what: string): void {
  const [a, b] = [bytesOf(actual), bytesOf(expected)];
  assert.equal(a.length, b.length, `${what}: ${a.length} bytes instead of ${b.length}`);
  if (Buffer.compare(a, b) === 0) return;
  const at = a.findIndex((byte, index) => byte !== b[index]);
  assert.fail(`${what}: byte ${at} of ${a.length} is ${a[at]}, expected ${b[at]}`);
}

/** The same for several arrays with names. */
export function sameNamedBytes(
  actual: Readonly<Record<string, ArrayBufferView>>,
  expected: Readonly<Record<string, ArrayBufferView>>,
  what: string,
): void {
  assert.deepEqual(Object.keys(actual), Object.keys(expected), what);
  for (const [name, array] of Object.entries(expected))
    sameBytes(actual[name]!, array, `${what}, in ${name}`);
}

function bytesOf(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
