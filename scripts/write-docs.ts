/** `npm run docs`: writes the generated pages and tables of docs/. A test checks that they match the code. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { generatedPages } from "./generated-docs.js";

// Compiled, this file is dist/scripts/write-docs.js.
const root = fileURLToPath(new URL("../..", import.meta.url));

for (const [path, text] of Object.entries(generatedPages((page) => readFileSync(join(root, page), "utf8")))) {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
  console.log(`wrote ${path}`);
}
