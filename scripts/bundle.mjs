// @ts-check
/**
 * The last step of `npm run build`: bundles the compiled modules into dist/lib, which is what the package's users load. Node takes about
 * a millisecond to load a module, and Holdfast has some eight hundred.
 *
 * Tests and benchmarks load the modules themselves, by the condition "holdfast-source" of package.json.
 */

import { rmSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { packageRoot } from "./testing/files.mjs";

const root = packageRoot(process.cwd());

/** What users import or run, and the scripts of threads and processes. A script keeps its name: the code looks for it in its own folder. */
const entries = [
  "index",
  "internals",
  "cli/main",
  "crossasset/bars/parquet/decode-thread",
  "driver/cpu/worker",
  "inspect/inspector-thread",
  "runtime/observe/watchdog/outside",
  "runtime/observe/watchdog/thread",
  "train/stopping/stop-thread",
];

const outdir = join(root, "dist/lib");
rmSync(outdir, { recursive: true, force: true });
await build({
  entryPoints: entries.map((entry) => join(root, `dist/src/${entry}.js`)),
  outdir,
  entryNames: "[name]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  platform: "node",
  target: "node20",
  packages: "external",
  // Errors, printed models and records have class names in them.
  keepNames: true,
  logLevel: "warning",
});
