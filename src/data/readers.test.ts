/** Files of NumPy and CSV: what NumPy wrote is read, what is written NumPy reads back, and damaged files are rejected. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { rejects } from "../../test/support/rejects.js";
import { repositoryRoot } from "../../test/support/repository.js";
import { HoldfastError } from "../errors/index.js";
import type { HostArray } from "./collate.js";
import { parseCsv } from "./csv.js";
import { readNpy, writeNpy } from "./npy.js";
import { readNpz, writeNpz } from "./npz.js";

/** Written by test/oracle/numpy_files.py. */
const fromNumpy = (name: string): Uint8Array =>
  new Uint8Array(readFileSync(join(repositoryRoot, "test/oracle", name)));

const expected: Readonly<Record<string, HostArray>> = {
  f4: { values: Float32Array.of(0, 0.5, 1, 1.5, 2, 2.5), shape: [2, 3] },
  fortran: { values: Float64Array.of(0, 1, 2, 3, 4, 5), shape: [1, 2, 3] },
  i8: { values: BigInt64Array.of(-5n, 7n), shape: [2] },
  scalar: { values: Int32Array.of(9), shape: [] },
  b1: { values: Uint8Array.of(1, 0), shape: [2], dtype: "bool" },
  empty: { values: new Uint16Array(0), shape: [0, 4] },
};

test("archives of NumPy are read, stored and compressed", () => {
  for (const file of ["arrays.npz", "compressed.npz"])
    assert.deepEqual({ ...readNpz(fromNumpy(file)) }, expected);
});

test("what is written is what NumPy writes, and is read back", () => {
  for (const [name, array] of Object.entries(expected))
    assert.deepEqual(readNpy(writeNpy(array)), array, name);
  const { f4 } = expected;
  assert.deepEqual([...writeNpy(f4!)], [...fromNumpy("f4.npy")]);
  for (const compressed of [false, true])
    assert.deepEqual({ ...readNpz(writeNpz(expected, { compressed })) }, expected);
});

test("altered files are read or rejected as bad files, and nothing else", () => {
  const originals = [fromNumpy("f4.npy"), fromNumpy("arrays.npz"), fromNumpy("compressed.npz")];
  const alteration = fc.record({
    file: fc.nat(2),
    changes: fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }),
    kept: fc.double({ min: 0, max: 1, noNaN: true }),
    isCut: fc.boolean(),
  });
  let rejected = 0;
  fc.assert(
    fc.property(alteration, ({ file, changes, kept, isCut }) => {
      const original = originals[file]!;
      const bytes = original.slice(0, isCut ? Math.floor(kept * original.length) : original.length);
      for (const [position, value] of changes) if (bytes.length > 0) bytes[position % bytes.length] = value;
      try {
        if (file === 0) readNpy(bytes);
        else readNpz(bytes);
      } catch (error) {
        assert.ok(error instanceof HoldfastError && error.code === "BAD_FILE", String(error));
        rejected += 1;
      }
    }),
    { numRuns: 400 },
  );
  assert.ok(rejected > 100, `${rejected}`);
});

test("sizes and types that can't be right are rejected before memory is used", () => {
  const withHeader = (header: string): Uint8Array => {
    const text = `${header}\n`;
    return Buffer.concat([
      Buffer.from("\x93NUMPY\x01\x00", "latin1"),
      Buffer.from([text.length, 0]),
      Buffer.from(text),
    ]);
  };
  const header = (descr: string, shape: string): Uint8Array =>
    withHeader(`{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`);
  rejects("BAD_FILE", () => readNpy(header("<f4", "999999999999, 999999999999")), /bytes of elements/);
  rejects("BAD_FILE", () => readNpy(header("|O", "1,")), /its type is \|O/);
  rejects("BAD_FILE", () => readNpy(header("<f4", `${"1".repeat(60)}x`)), /not that of a plain array/);
  rejects("BAD_FILE", () => readNpz(fromNumpy("compressed.npz"), { maxBytes: 8 }), /raise maxBytes/);
  rejects("BAD_SHAPE", () => writeNpy({ values: new Float32Array(3), shape: [2] }), /3 elements/);
});

test("CSV tables have columns of numbers and of strings", () => {
  const table = parseCsv('id,text,value\r\n1,"a,\n""b""",0.5\r\n2,,\r\n\r\n3,c,-1e3');
  assert.equal(table.rows, 3);
  assert.deepEqual(
    { ...table.columns },
    {
      id: Float64Array.of(1, 2, 3),
      text: ['a,\n"b"', "", "c"],
      value: Float64Array.of(0.5, Number.NaN, -1000),
    },
  );
  const plain = parseCsv("1;x\n2;", { header: false, delimiter: ";" });
  assert.deepEqual({ ...plain.columns }, { 0: Float64Array.of(1, 2), 1: ["x", ""] });
  assert.deepEqual({ ...parseCsv("__proto__\n1").columns }, { ["__proto__"]: Float64Array.of(1) });
});

test("any table is read back from its text", () => {
  const cell = fc.string({ maxLength: 6, unit: fc.constantFrom("a", '"', ",", "\n", "\r", " ", "é") });
  const rows = fc.array(fc.tuple(cell, cell), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(rows, (table) => {
      const text = table
        .map((row) => `x,${row.map((value) => `"${value.replaceAll('"', '""')}"`).join()}\n`)
        .join("");
      const { columns } = parseCsv(text, { header: false });
      const read = (column: string) => Array.from(columns[column] as readonly string[]);
      assert.deepEqual([read("1"), read("2")], [table.map(([a]) => a), table.map(([, b]) => b)]);
    }),
    { numRuns: 100 },
  );
});

test("faults of CSV are reported with their line", () => {
  rejects("BAD_FILE", () => parseCsv("a,b\n1\n"), /Line 2 .* 1 values, but 2 columns/);
  rejects("BAD_FILE", () => parseCsv('a\n"x\ny"\n"z'), /Line 4 .* not closed/);
  rejects("BAD_FILE", () => parseCsv('a\n"x"y\n'), /text follows/);
  rejects("BAD_FILE", () => parseCsv('a\nx"y\n'), /inside a value/);
  rejects("BAD_FILE", () => parseCsv("a,a\n"), /comes twice/);
  rejects("BAD_ARGUMENT", () => parseCsv("a", { delimiter: ",," }), /one character/);
});
