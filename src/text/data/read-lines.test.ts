/** Lines of files: parts of any sizes, byte order marks, long lines. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { makeFolder } from "../../../test/support/folders.js";
import { rejects } from "../../../test/support/rejects.js";
import { decodeLine, readLines } from "./read-lines.js";

const path = join(makeFolder(), "a.txt");

test("a file of several parts has all its lines once, whatever crosses the border of a part", () => {
  const long = "é".repeat(2_300_000);
  const text = `\ufeffone\n\n${long}\nlast ${long}`;
  writeFileSync(path, text);
  let bytes = 0;
  const lines = [...readLines(path, { onBytes: ({ length }) => (bytes += length) })];
  assert.deepEqual(
    lines.map(({ number }) => number),
    [1, 2, 3, 4],
  );
  assert.equal(lines.map((line) => decodeLine(path, line)).join(""), text.slice(1));
  assert.equal(bytes, Buffer.byteLength(text));
});

test("a line has a maximum", () => {
  writeFileSync(path, `ok\n${"x".repeat(2048)}`);
  const read = (maxLineBytes: number) => [...readLines(path, { onBytes: () => undefined, maxLineBytes })];
  assert.equal(read(2048).length, 2);
  rejects("BAD_FILE", () => read(2047), /line 2, has more than .* KiB, the maximum of a line/);
});
