/**
 * A program that writes V8's code cache of the library (scripts/load-all.mjs), for test processes with the same flags. It trains a small
 * model first: V8 compiles a function at its first call, and the cache has only compiled functions.
 */

import { setFlagsFromString } from "node:v8";
import { Device } from "holdfast";
import { openCpuDriver, strict } from "holdfast/internals";
import { GptTraining } from "../gpt-training.js";
import { withNullGpu } from "../null-gpu.js";

const quiet = { stallAfter: "off", print: () => {} } as const;

/** A GPU without memory has no loss to read. */
function train(device: Device, isLossWanted: boolean): void {
  const training = new GptTraining(device, { batch: 2, width: 8, context: 4, layers: 1 });
  training.step(isLossWanted);
  training.step(isLossWanted);
  training.close();
}

const driver = openCpuDriver({ threads: 1 });
const device = new Device("cpu", { driver: strict(driver), poison: true, ...quiet });
train(device, true);
device.close();
driver.close();
// For the compiler's passes for GPUs, and their kernels.
withNullGpu("f32", (gpu) => train(gpu, false));

// Opening the CPU's driver has set it in some versions of V8, and V8 compares the flags.
setFlagsFromString("--no-experimental-wasm-relaxed-simd");
const loader = new URL("../../../modules/load-all.mjs", import.meta.url).href;
const { writeCodeCache } = (await import(loader)) as { writeCodeCache(): void };
writeCodeCache();
