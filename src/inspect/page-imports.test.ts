/** A browser has none of Node's modules: from the other layers, the page imports types and nothing else. */

import assert from "node:assert/strict";
import test from "node:test";
import { filesBelow, readRepositoryFile } from "../../test/support/repository.js";

const outside =
  /^(?:import|export)\s+(type\s)?[^;]*?\bfrom\s+"(?:\.\.\/)+(?:records|train|compile|units|tensor)\b[^"]*";/gm;

/** The imports from other layers that are not types. */
function valueImports(text: string): string[] {
  return [...text.matchAll(outside)].filter(([, type]) => type === undefined).map(([statement]) => statement);
}

test("the page imports types only from other layers", () => {
  const files = [...filesBelow("src/inspect/page", ".ts"), ...filesBelow("src/inspect/page", ".tsx")];
  const texts = files.filter((file) => !file.endsWith(".test.ts")).map(readRepositoryFile);
  assert.ok(texts.some((text) => text.match(outside)));
  assert.deepEqual(texts.flatMap(valueImports), []);
});

test("an import of a value is found", () => {
  const statement = 'import { incidentKinds } from "../../records/index.js";';
  assert.deepEqual(valueImports(`/** A page. */\n\n${statement}\n`), [statement]);
  assert.deepEqual(valueImports('export type { RunStatus } from "../../records/index.js";\n'), []);
});
