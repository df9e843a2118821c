/**
 * Benchmarks use internal modules next to the public API. Both must come from dist/src: the bundle in dist/lib would be a second copy of
 * the library.
 */

if (!import.meta.resolve("holdfast").endsWith("/dist/src/index.js")) {
  throw new Error("Start benchmarks with: node --conditions=holdfast-source dist/bench/…");
}

// Processes that a benchmark starts need the condition too.
const { NODE_OPTIONS = "" } = process.env;
const condition = "--conditions=holdfast-source";
if (!NODE_OPTIONS.includes(condition)) process.env["NODE_OPTIONS"] = `${NODE_OPTIONS} ${condition}`;
