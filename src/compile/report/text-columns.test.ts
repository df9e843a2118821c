/** Columns are aligned and keep their maximum widths. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { cutText, formatColumns, wrapText } from "./text-columns.js";

test("columns are as wide as their longest text, numbers align right, and long names are cut with an ellipsis", () => {
  const columns = [
    { title: "op", align: "left", max: 8 },
    { title: "bytes", align: "right" },
  ] as const;
  const rows = [
    ["softmax", "12"],
    ["crossEntropy", "123456"],
  ];
  assert.deepEqual(formatColumns(columns, rows), [
    "op         bytes",
    "softmax       12",
    "crossEn…  123456",
  ]);
});

test("a wrapped text has all its words in order, in lines of at most the width", () => {
  const words = fc.array(
    fc
      .array(fc.constantFrom("a", "β", "×"), { minLength: 1, maxLength: 9 })
      .map((letters) => letters.join("")),
    { minLength: 1, maxLength: 40 },
  );
  fc.assert(
    fc.property(words, fc.integer({ min: 9, max: 40 }), (list, width) => {
      const lines = wrapText(list.join(" "), width);
      assert.equal(lines.join(" "), list.join(" "));
      for (const line of lines) assert.ok(line.length <= width, line);
      for (const [index, line] of lines.entries()) {
        const [next = ""] = lines[index + 1]?.split(" ") ?? [];
        if (next !== "") assert.ok(line.length + 1 + next.length > width, "a line was broken too early");
      }
    }),
  );
});

test("a word that is too long has a line of its own", () => {
  assert.deepEqual(wrapText("a supercalifragilistic b", 8), ["a", "supercalifragilistic", "b"]);
});

test("a text is cut to its maximum length, ellipsis included", () => {
  assert.deepEqual([cutText("abc", 3), cutText("abcd", 3), cutText("abcd", 1)], ["abc", "ab…", "…"]);
});
