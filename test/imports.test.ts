/** Imports point down: the layers of src/, their order, and the proof that a wrong import is found. */

import assert from "node:assert/strict";
import test from "node:test";
import { importCycles, importGraph } from "./support/import-cycles.js";
import { importProblems, type LayerTable, openingComment, readImports } from "./support/import-rules.js";
import { filesBelow, readRepositoryFile } from "./support/repository.js";

/** From the bottom up: a layer may import from earlier rows, but not from its own row. */
const layers: LayerTable = [
  ["errors", "records"],
  ["units"],
  ["files", "http"],
  ["driver"],
  ["runtime"],
  ["distributed"],
  ["ir"],
  ["kernels"],
  ["ops"],
  ["compile"],
  ["autograd"],
  ["tensor"],
  ["nn"],
  ["parallel"],
  ["optim", "data"],
  ["text"],
  ["models"],
  ["generate"],
  ["train"],
  ["crossasset", "lm", "onnx"],
  ["inspect", "serve"],
  ["cli"],
];

const sources = [...filesBelow("src", ".ts"), ...filesBelow("src", ".tsx")].map((path) => ({
  file: path.slice("src/".length),
  text: readRepositoryFile(path),
}));

const imports = sources.map(({ file, text }) => readImports(file, text));

/** The problem of a made-up file with one import. */
function problemOf(file: string, specifier: string): string | undefined {
  return importProblems(layers, [readImports(file, `import { x } from "${specifier}";\n`)])[0];
}

test("every import in src/ points down and goes through an index", () => {
  assert.deepEqual(importProblems(layers, imports), []);
});

test("no files in src/ import each other in a cycle, type imports included", () => {
  assert.deepEqual(importCycles(importGraph(imports)), []);
});

test("an import cycle is found, and reported by its files", () => {
  const source = (file: string, ...code: string[]) => readImports(file, code.join("\n"));
  const cycles = importCycles(
    importGraph([
      source("ops/a.ts", 'import { b } from "./b.js";', 'import "node:fs";'),
      source("ops/b.ts", 'import type { C } from "./sub/c.js";'),
      source("ops/sub/c.ts", 'export { a } from "../a.js";', 'import { leaf } from "../leaf.js";'),
      source("ops/leaf.ts", 'import { missing } from "./missing.js";'),
      source("ops/user.ts", 'import { a } from "./a.js";', 'import { leaf } from "./leaf.js";'),
      source("page/chart.tsx", 'import { options } from "./options.js";'),
      source("page/options.tsx", 'type Chart = import("./chart.js").Chart;'),
      source("page/self.ts", 'import { self } from "./self.js";'),
    ]),
  );
  assert.deepEqual(cycles, [
    ["ops/a.ts", "ops/b.ts", "ops/sub/c.ts"],
    ["page/chart.tsx", "page/options.tsx"],
    ["page/self.ts"],
  ]);
});

test("files that share an import without a way back form no cycle", () => {
  const diamond = new Map([
    ["top.ts", ["left.ts", "right.ts"]],
    ["left.ts", ["bottom.ts"]],
    ["right.ts", ["bottom.ts", "left.ts"]],
    ["bottom.ts", []],
  ]);
  assert.deepEqual(importCycles(diamond), []);
});

test("every file in src/ opens with a comment", () => {
  const uncommented = sources.filter(({ text }) => openingComment(text) === "").map(({ file }) => file);
  assert.deepEqual(uncommented, []);
});

test("every layer has an index that opens with the purpose of the layer", () => {
  const present = layers.flat().filter((layer) => sources.some(({ file }) => file.startsWith(`${layer}/`)));
  const unexplained = present.filter((layer) => {
    const index = sources.find(({ file }) => file === `${layer}/index.ts`);
    return index === undefined || openingComment(index.text).split(/\s+/).length < 4;
  });
  assert.deepEqual(unexplained, []);
});

test("an import that points up is found", () => {
  const expected = "runtime/arena.ts imports tensor/index.ts, but tensor/ stands above runtime/.";
  assert.equal(problemOf("runtime/arena.ts", "../tensor/index.js"), expected);
  assert.equal(problemOf("tensor/tensor.ts", "../runtime/index.js"), undefined);
});

test("an upward import is found in a test, a type import, a re-export and a dynamic import too", () => {
  assert.match(problemOf("runtime/arena.test.ts", "../tensor/index.js") ?? "", /stands above/);
  for (const code of [
    'import type { Tensor } from "../tensor/index.js";',
    'export { Tensor } from "../tensor/index.js";',
    'export * from "../tensor/index.js";',
    'const tensor = await import("../tensor/index.js");',
    'type Tensor = import("../tensor/index.js").Tensor;',
  ]) {
    assert.equal(importProblems(layers, [readImports("runtime/arena.ts", code)]).length, 1, code);
  }
});

test("an import past a layer's index is found", () => {
  const expected = "tensor/tensor.ts imports runtime/arena.ts, past the index of runtime/.";
  assert.equal(problemOf("tensor/tensor.ts", "../runtime/arena.js"), expected);
  assert.match(problemOf("tensor/tensor.test.ts", "../runtime/arena.js") ?? "", /past the index/);
  assert.match(problemOf("index.ts", "./runtime/arena.js") ?? "", /past the index/);
  assert.equal(problemOf("index.ts", "./runtime/index.js"), undefined);
  assert.equal(problemOf("runtime/budget.ts", "./arena.js"), undefined);
});

test("an import past the index of a folder of the driver is found, except in the driver's tests", () => {
  const expected = "driver/strict/strict.ts imports driver/cpu/memory.ts, past the index of driver/cpu/.";
  assert.equal(problemOf("driver/strict/strict.ts", "../cpu/memory.js"), expected);
  assert.match(problemOf("driver/index.ts", "./cpu/memory.js") ?? "", /past the index of driver\/cpu\//);
  assert.match(problemOf("runtime/arena.ts", "../driver/cpu/index.js") ?? "", /past the index of driver\//);
  assert.equal(problemOf("driver/strict/strict.test.ts", "../cpu/memory.js"), undefined);
  assert.equal(problemOf("driver/cpu/memory.ts", "../driver.js"), undefined);
});

test("layers of one row may not import each other", () => {
  assert.match(problemOf("optim/adamw.ts", "../data/index.js") ?? "", /stands beside/);
  assert.equal(problemOf("optim/adamw.ts", "../nn/index.js"), undefined);
});

test("a folder outside the table, a file in no layer and an import around the layers are found", () => {
  assert.match(problemOf("helpers/text.ts", "node:fs") ?? "", /which the table of layers lacks/);
  assert.match(problemOf("stray.ts", "node:fs") ?? "", /stands in no layer/);
  assert.match(problemOf("runtime/arena.ts", "holdfast") ?? "", /its own package/);
  assert.match(problemOf("runtime/arena.ts", "../index.js") ?? "", /above every layer/);
  assert.match(problemOf("runtime/arena.ts", "../../test/support/repository.js") ?? "", /outside src/);
  assert.equal(problemOf("runtime/arena.test.ts", "../../test/support/repository.js"), undefined);
});

test("a file without an opening comment is found, even after a shebang", () => {
  assert.equal(openingComment('import "node:fs";\n/** late */\n'), "");
  assert.equal(openingComment("#!/usr/bin/env node\n/** The command. */\n"), "The command.");
  assert.equal(openingComment("#!/usr/bin/env node\nrun();\n"), "");
  assert.equal(openingComment("// One line.\nrun();\n"), "One line.");
});
