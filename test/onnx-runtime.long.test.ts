/**
 * ONNX Runtime gives the results of exported models: all examples, CrossAsset, the programs of test/programs, and models from configs.
 * `npm run test:onnx -- --install` fetches it.
 */

import { test } from "node:test";
import { openDevice } from "./support/devices.js";
import { makeFolder } from "./support/folders.js";
import { compareExport } from "./support/onnx/compare.js";
import { exportedModels, makeExported } from "./support/onnx/exported-models.js";
import { findOnnxRuntime, needsOnnxRuntime } from "./support/onnx/runtime.js";

const cpu = openDevice({ threads: 1 });
const folder = makeFolder();

for (const name of Object.keys(exportedModels))
  test(`ONNX Runtime gives the results of ${name}`, needsOnnxRuntime, async () => {
    await compareExport(cpu, folder, makeExported(name, cpu), [findOnnxRuntime()!]);
  });
