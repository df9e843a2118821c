/**
 * `holdfast tour`: demonstrates the memory runtime on this machine, in a few seconds. All figures and errors come from the
 * engine.
 */

import { basicKernels, blockCount } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import { openRuntime, type Runtime, type Storage } from "../runtime/index.js";
import { formatBytes, formatDuration, MiB } from "../units/index.js";
import { commandDefaults } from "./command-defaults.js";

const rows = 20_000;
const features = 193;

export function tour(): void {
  heading("1. Open the device. Its memory, and the default budget:");
  const runtime = openRuntime({ memory: "512MiB", capture: "on", ...commandDefaults() });
  try {
    process.stdout.write(runtime.diagnosticsText());
    const weights = uploadTensors(runtime);
    runSteps(runtime);
    misuse(runtime);
    overspend(runtime);
    captureAStep(runtime, weights);
    heading("7. Print the diagnostics. runtime.diagnostics() returns them as JSON.");
    process.stdout.write(runtime.diagnosticsText());
  } finally {
    runtime.close();
  }
}

function uploadTensors(runtime: Runtime): Storage {
  heading(
    `2. Place and upload one weight and ${rows} rows of ${features} features. The number of copies depends on bytes, not on tensors.`,
  );
  const model = runtime.persistent.place("weights", "model", [{ name: "w", size: 4 * MiB }]);
  const placements = Array.from({ length: rows }, (_, row) => ({ name: `row ${row}`, size: 4 * features }));
  const data = runtime.persistent.place("data set", "rows", placements);
  const source = new Float32Array(features).fill(0.5);
  const startedMs = performance.now();
  const sent = runtime.upload([
    ...model.storages.map((target) => ({ source: new Float32Array(MiB).fill(1), target })),
    ...data.storages.map((target) => ({ source, target })),
  ]);
  runtime.synchronize();
  const elapsed = formatDuration(performance.now() - startedMs);
  say(
    `${sent.tensors} tensors, ${formatBytes(sent.bytes)}, uploaded in ${sent.copies} copies in ${elapsed}.`,
  );
  return only(model.storages);
}

function runSteps(runtime: Runtime): void {
  heading("3. Run 1,000 steps of 100 allocations each. The end of a step resets the arena.");
  const committed = new Set<number>();
  const startedMs = performance.now();
  for (let count = 0; count < 1000; count++) {
    runtime.step(() => {
      for (let index = 0; index < 100; index++) runtime.arena.allocate(1024 + 977 * index, "activation");
    });
    committed.add(runtime.arena.figures.committed);
  }
  const each = ((performance.now() - startedMs) / 100_000) * 1000;
  say(
    `Committed after every step: ${[...committed].map(formatBytes).join(", ")}. ${each.toFixed(2)} µs per allocation.`,
  );
}

function misuse(runtime: Runtime): void {
  heading("4. Use a storage after its step. The error names the storage:");
  const gone = runtime.step(() => runtime.arena.allocate(48 * 1024, "attention output"));
  rejection(() => runtime.read(gone));
}

function overspend(runtime: Runtime): void {
  heading(
    "5. Request more than the budget has. The error comes before any driver call and lists the holders:",
  );
  rejection(() => runtime.persistent.place("moments", "AdamW", [{ name: "m", size: 1024 * MiB }]));
}

function captureAStep(runtime: Runtime, weight: Storage): void {
  heading("6. Capture an update as one launch. Its first replay must equal the direct run, bit for bit.");
  const rate = only(runtime.persistent.place("scalars", "rate", [{ name: "rate", size: 4 }]).storages);
  runtime.upload([{ source: new Float32Array([0.5]), target: rate }]);
  const kernel = runtime.kernel(basicKernels.scale);
  const count = weight.span.size / 4;
  const shrink = (): void =>
    runtime.launch({
      op: "shrink",
      kernel,
      blocks: blockCount(count),
      arguments: [weight, weight, rate, count],
    });
  const update = runtime.capture("update", shrink);
  for (let replay = 0; replay < 3; replay++) update.replay();
  const [first] = new Float32Array(runtime.read(weight).buffer);
  say(`Captured as a ${update.mode}; after three replays of w ← w · 0.5 the weight is ${first}.`);
  say("A capture that allocates is an error before any driver call:");
  rejection(() => runtime.capture("bad step", () => void runtime.arena.allocate(48 * 1024, "matmul")));
}

/** Prints the error of a call that must fail. */
function rejection(call: () => unknown): void {
  try {
    call();
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    say(`${error.code}: ${error.message}`);
    return;
  }
  throw new Error("the engine accepted an invalid call");
}

function only<T>(list: readonly T[]): T {
  const [first] = list;
  if (first === undefined || list.length !== 1) throw new Error(`expected one, found ${list.length}`);
  return first;
}

function heading(text: string): void {
  console.log(`\n${text}`);
}

function say(text: string): void {
  console.log(text.replace(/^/gm, "  │ "));
}
