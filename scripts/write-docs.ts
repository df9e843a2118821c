/** `npm run docs`: writes the generated pages of docs/. A test holds that they are what the tables say. */

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { generatedPages } from "./generated-docs.js";

// Compiled, this file is dist/scripts/write-docs.js.
const root = fileURLToPath(new URL("../..", import.meta.url));

for (const [path, text] of Object.entries(generatedPages())) {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
  console.log(`wrote ${path}`);
}
