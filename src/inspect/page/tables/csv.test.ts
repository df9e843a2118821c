/** CSV is read back unchanged by another library's reader. */

import assert from "node:assert/strict";
import test from "node:test";
import { parse } from "csv-parse/sync";
import * as fc from "fast-check";
import { toCsv } from "./csv.js";

test("any text in a cell is read back unchanged", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.string(), fc.string()), { minLength: 1 }), (rows) => {
      const read: unknown = parse(toCsv(["a", "b"], rows), { relax_column_count: false });
      assert.deepEqual(read, [["a", "b"], ...rows]);
    }),
  );
});

test("an unknown value is an empty cell", () => {
  assert.equal(toCsv(["x", "y", "z"], [[null, undefined, Number.NaN]]), "x,y,z\r\n,,\r\n");
});
