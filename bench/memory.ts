/**
 * `npm run bench:memory`: the cost of memory operations. Time per arena allocation over 10,000 steps
 * (constant, and less than a microsecond), time per upload of many small tensors, and the overhead of the
 * always-on recorder and watched driver.
 */

import { cpus } from "node:os";
import { openCpuDriver, openRuntime, type Runtime } from "holdfast/internals";
import { answerHelp } from "../test/support/command-line.js";

answerHelp(import.meta.url);

const steps = 10_000;
const allocationsPerStep = 500;
const intervals = 5;

function withRuntime(use: (runtime: Runtime) => void): void {
  const driver = openCpuDriver({ threads: 1 });
  const runtime = openRuntime({ driver, stallAfter: "off", environment: {}, print: () => {} });
  use(runtime);
  runtime.close();
  driver.close();
}

/** Nanoseconds for an allocation and its share of the step's end, in each fifth of the run. */
function arenaAllocations(runtime: Runtime): void {
  const sizes = Array.from({ length: allocationsPerStep }, (_, index) => 256 + ((index * 7919) % 65_536));
  console.log(`\n${steps} steps of ${allocationsPerStep} arena allocations`);
  console.log("  steps            ns per allocation   committed");
  for (let interval = 0; interval < intervals; interval++) {
    const startedAt = performance.now();
    for (let step = 0; step < steps / intervals; step++) {
      runtime.step(() => {
        for (const size of sizes) runtime.arena.allocate(size, "bench");
      });
    }
    const nanoseconds = ((performance.now() - startedAt) * 1e6) / ((steps / intervals) * allocationsPerStep);
    const range = `${(interval * steps) / intervals} to ${((interval + 1) * steps) / intervals}`;
    console.log(
      `  ${range.padEnd(16)} ${nanoseconds.toFixed(0).padStart(17)}   ${runtime.arena.figures.committed} B`,
    );
  }
}

function smallUploads(runtime: Runtime): void {
  const count = 213_304;
  const rowBytes = 193 * 4;
  const placements = Array.from({ length: count }, (_, index) => ({ name: `row ${index}`, size: rowBytes }));
  const region = runtime.persistent.place("data set", "rows", placements);
  const source = new Float32Array(193).fill(1);
  const items = region.storages.map((target) => ({ source, target }));
  const startedAt = performance.now();
  const { copies, bytes } = runtime.upload(items);
  runtime.synchronize();
  const elapsedMs = performance.now() - startedAt;
  console.log(`\nupload of ${count} tensors of ${rowBytes} bytes`);
  console.log(`  ${copies} copies, ${elapsedMs.toFixed(0)} ms, ${(bytes / elapsedMs / 1e6).toFixed(2)} GB/s`);
}

function recorderEvents(runtime: Runtime): void {
  const events = 5_000_000;
  const startedAt = performance.now();
  for (let event = 0; event < events; event++) runtime.recorder.record("allocate", "bench", event, 256);
  console.log(`\nrecorder: ${(((performance.now() - startedAt) * 1e6) / events).toFixed(0)} ns per event`);
}

console.log(
  `${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} × ${cpus()[0]?.model}`,
);
withRuntime(arenaAllocations);
withRuntime(recorderEvents);
withRuntime(smallUploads);
