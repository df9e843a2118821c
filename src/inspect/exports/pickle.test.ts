/** Pickles are read back by a strict reader, and by Python if it is installed. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { makeFolder } from "../../../test/support/folders.js";
import { readPickle } from "../../../test/support/read-pickle.js";
import { unicodeText } from "../../../test/support/unicode-text.js";
import { PickleTuple, type PickleValue, pickle } from "./pickle.js";

const { value: drawnValue } = fc.letrec<{ value: PickleValue }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constant(null),
    fc.boolean(),
    fc.maxSafeInteger(),
    fc.integer(),
    fc.double(),
    unicodeText(300),
    fc.array(tie("value")),
    fc.array(tie("value"), { maxLength: 4 }).map((items) => new PickleTuple(...items)),
    fc.dictionary(fc.string({ unit: "grapheme" }), tie("value")),
  ),
}));

/** The value that the reader should return. */
function expected(value: PickleValue): unknown {
  if (typeof value === "number") return Number.isInteger(value) ? value + 0 : { float: value };
  if (value instanceof PickleTuple) return { tuple: value.items.map(expected) };
  if (Array.isArray(value)) return value.map(expected);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, expected(item)]));
}

test("every value is read back unchanged, with the opcodes that the viewer supports", () => {
  fc.assert(
    fc.property(
      // Excludes whole numbers above 2^53 and lone surrogates.
      drawnValue.filter((value) => !/\\ud[89a-f]/i.test(JSON.stringify(value)) && isSafe(value)),
      (value) => assert.deepEqual(readPickle(pickle(value)), expected(value)),
    ),
    { numRuns: effort({ quick: 50, thorough: 500 }) },
  );
});

function isSafe(value: PickleValue): boolean {
  if (typeof value === "number") return !Number.isInteger(value) || Number.isSafeInteger(value);
  if (value instanceof PickleTuple) return value.items.every(isSafe);
  if (typeof value !== "object" || value === null) return true;
  return Object.values(value).every(isSafe);
}

test("long lists come in batches, and a pickle larger than the first buffer is complete", () => {
  const list = Array.from({ length: 30_001 }, (_, index) => index * 65_537);
  assert.deepEqual(readPickle(pickle({ list, text: "ß".repeat(70_000) })), {
    list,
    text: "ß".repeat(70_000),
  });
});

test("a whole number that a float can't represent exactly is rejected", () => {
  assert.throws(() => pickle([2 ** 53]), /9007199254740992 is not a safe integer/);
});

test("Python reads it", (context) => {
  const path = join(makeFolder(), "value.pickle");
  const value = {
    ...{ none: null, yes: true, no: false, list: [], text: "größer 𝄞", long: "x".repeat(300) },
    numbers: [0, 255, 256, 65_535, 65_536, -1, 2 ** 31 - 1, 2 ** 31, -(2 ** 31) - 1, 2 ** 53 - 1, 0.1],
    tuples: [new PickleTuple(), new PickleTuple(1), new PickleTuple(1, "a"), new PickleTuple(1, 2, 3)],
  };
  writeFileSync(path, pickle(value));
  const script = "import pickle, sys; print(repr(pickle.load(open(sys.argv[1], 'rb'))))";
  const { status, stdout, stderr, error } = spawnSync("python3", ["-c", script, path], { encoding: "utf8" });
  if (error) return context.skip(`no python3: ${error.message}`);
  assert.equal(status, 0, stderr);
  assert.equal(
    stdout.trim(),
    "{'none': None, 'yes': True, 'no': False, 'list': [], 'text': 'größer 𝄞', " +
      `'long': '${"x".repeat(300)}', ` +
      "'numbers': [0, 255, 256, 65535, 65536, -1, 2147483647, 2147483648, -2147483649, 9007199254740991, 0.1], " +
      "'tuples': [(), (1,), (1, 'a'), (1, 2, 3)]}",
  );
});
