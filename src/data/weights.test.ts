/** Weights on disk: every bit is restored, and a file that does not fit changes nothing. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { openDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { fileWith } from "../../test/support/safetensors-file.js";
import { sameNamedBytes } from "../../test/support/same-bytes.js";
import type { Dtype } from "../ir/index.js";
import * as nn from "../nn/index.js";
import { loadWeights, saveWeights } from "./weights.js";

const folder = mkdtempSync(join(tmpdir(), "weights-"));
const path = join(folder, "model.safetensors");
const cpu = openDevice();
after(() => rmSync(folder, { recursive: true }));

const makeModel = (dtype: Dtype = "f32", width = 4): nn.Module =>
  new nn.TransformerEncoderLayer(width, 2, { dimFeedforward: 6 }).to(cpu, dtype);

const bytesOf = (module: nn.Module): Record<string, Uint8Array> =>
  Object.fromEntries(
    [...module.namedParameters()].map(([name, { array }]) => [name, cpu.runtime.read(array.storage!)]),
  );

for (const dtype of ["f32", "f64", "bf16", "f16"] as const) {
  test(`a module's ${dtype} weights are restored bit for bit, with the metadata`, () => {
    const [saved, loaded] = [makeModel(dtype), makeModel(dtype)];
    saveWeights(path, saved, new Map([["epoch", "7"]]));
    const { missing, unexpected, metadata } = loadWeights(path, loaded);
    assert.deepEqual([missing, unexpected, metadata.get("epoch")], [[], [], "7"]);
    sameNamedBytes(bytesOf(loaded), bytesOf(saved), "the loaded module");
  });
}

test("a file of another dtype is converted", () => {
  const [saved, loaded] = [makeModel("bf16"), makeModel("f32")];
  saveWeights(path, saved);
  loadWeights(path, loaded);
  assert.deepEqual(loaded.parameters()[0]?.tolist(), saved.parameters()[0]?.tolist());
});

test("a file of another width is rejected with its path, and nothing is written", () => {
  saveWeights(path, makeModel("f32", 8));
  const model = makeModel();
  const before = bytesOf(model);
  rejects("BAD_STATE", () => loadWeights(path, model), /model\.safetensors: The state does not fit/);
  rejects("BAD_STATE", () => loadWeights(path, model, { strict: false }));
  sameNamedBytes(bytesOf(model), before, "the module");
});

test("strict loading needs every name; non-strict loading returns the missing names", () => {
  saveWeights(path, new nn.Sequential(new nn.Linear(2, 2)).to(cpu));
  const larger = new nn.Sequential(new nn.Linear(2, 2), new nn.Linear(2, 2)).to(cpu);
  rejects("BAD_STATE", () => loadWeights(path, larger), /missing in the state: 1.weight, 1.bias/);
  assert.deepEqual(loadWeights(path, larger, { strict: false }).missing, ["1.weight", "1.bias"]);
});

test("a module without a device has no weights to save, and no file is created", () => {
  rejects("NO_DEVICE", () => saveWeights(join(folder, "none.safetensors"), new nn.Linear(1, 1)));
  rejects("BAD_FILE", () => loadWeights(join(folder, "none.safetensors"), makeModel()));
});

test("tensors of foreign dtypes are converted if they fit, or skipped by name", () => {
  const layer = new nn.Linear(1, 2).to(cpu);
  const file = fileWith(
    JSON.stringify({
      weight: { dtype: "U64", shape: [2, 1], data_offsets: [0, 16] },
      bias: { dtype: "F8_E4M3", shape: [2], data_offsets: [16, 18] },
      steps: { dtype: "I64", shape: [], data_offsets: [18, 26] },
    }),
    26,
  );
  const data = new DataView(file.buffer, file.length - 26);
  data.setBigInt64(0, 3n, true);
  data.setBigInt64(8, 5n, true);
  data.setUint8(16, 0x38);
  data.setUint8(17, 0xb9);
  data.setBigInt64(18, 2n ** 50n, true);
  writeFileSync(path, file);
  rejects("BAD_STATE", () => loadWeights(path, layer), /not in the module: steps/);
  loadWeights(path, layer, { skip: ["steps"] });
  assert.deepEqual(
    [layer.weight.tolist(), layer.bias?.tolist()],
    [
      [[3], [5]],
      [1, -1.125],
    ],
  );
  // A tensor that is not in the module is never decoded.
  assert.deepEqual(loadWeights(path, layer, { strict: false }).unexpected, ["steps"]);
  data.setBigInt64(8, 2n ** 40n, true);
  data.setUint8(16, 0);
  writeFileSync(path, file);
  const message =
    /model\.safetensors: Tensor "weight" has the dtype "U64", and its element 1 is 1099511627776/;
  rejects("BAD_DTYPE", () => loadWeights(path, layer, { strict: false }), message);
  assert.deepEqual(layer.bias?.tolist(), [1, -1.125]);
});

test("arguments other than a path and a module are rejected", () => {
  const model = makeModel();
  for (const wrong of [undefined, 7, {}]) {
    rejects("BAD_FILE", () => saveWeights(wrong as never, model));
    rejects("BAD_FILE", () => loadWeights(wrong as never, model));
    rejects("BAD_ARGUMENT", () => saveWeights(path, wrong as never), /saveWeights takes a path and a module/);
    rejects("BAD_ARGUMENT", () => loadWeights(path, wrong as never), /loadWeights takes a path and a module/);
  }
});
