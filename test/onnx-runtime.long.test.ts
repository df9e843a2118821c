/**
 * ONNX Runtime gives the results of exported models: all examples, CrossAsset, the programs of test/programs, and models from configs.
 * `npm run test:onnx -- --install` fetches it.
 */

import assert from "node:assert/strict";
import { rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { writeModel } from "../src/onnx/write-model.js";
import { GiB, MiB } from "../src/units/index.js";
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

test("ONNX Runtime reads weights behind the first 2 GiB of the second file", needsOnnxRuntime, async () => {
  // Three tensors of the same bytes: the memory holds them once.
  const [rows, width] = [(1100 * MiB) / 4096, 1024];
  const values = new Float32Array(rows * width);
  for (let row = 0; row < rows; row++) values[row * width] = row;
  const content = new Uint8Array(values.buffer);
  const names = ["a", "b", "c"];
  const initializers = names.map((name) => ({ name, dtype: "f32" as const, shape: [rows, width], content }));
  const node = (type: string, inputs: readonly string[], output: string) => ({
    ...{ name: output, type, inputs, outputs: [output], attributes: {} },
  });
  const nodes = [
    ...names.map((name) => node("Gather", [name, "ids"], `rows of ${name}`)),
    node(
      "Sum",
      names.map((name) => `rows of ${name}`),
      "sum",
    ),
  ];
  const ports = {
    inputs: [{ name: "ids", dtype: "i32" as const, shape: [2] }],
    outputs: [{ name: "sum", dtype: "f32" as const, shape: [2, width] }],
  };
  const producer = { name: "holdfast", version: "test" };
  const graph = { name: "large", nodes, ...ports };
  const model = { irVersion: 9, opset: 20, producer, metadata: {}, graph };
  const path = join(folder, "large.onnx");
  const { files } = writeModel(cpu.runtime, path, model, initializers, 1900 * MiB);
  assert.ok(statSync(files[1]!).size > 3 * GiB);
  const run = await findOnnxRuntime()!.open(path);
  const ids = { dtype: "i32", shape: [2], data: [rows - 1, 7] } as const;
  const { sum } = await run({ ids });
  assert.deepEqual([sum?.data[0], sum?.data[1], sum?.data[width]], [3 * (rows - 1), 0, 21]);
  for (const file of files) rmSync(file);
});
