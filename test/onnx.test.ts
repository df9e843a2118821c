/** ONNX files: their structure by a strict reader, and their results by a plain interpreter, compared with the models'. */

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { exportOnnx, nn, rand, randn, type Tensor, tensor, zeros } from "holdfast";
import { openDevice } from "./support/devices.js";
import { makeFolder } from "./support/folders.js";
import { compareExport } from "./support/onnx/compare.js";
import { readModel } from "./support/onnx/read-model.js";
import { rejects } from "./support/rejects.js";

const cpu = openDevice({ threads: 1 });
const folder = makeFolder();

const mlp = () =>
  new nn.Sequential(new nn.Linear(4, 8), new nn.GELU(), new nn.Dropout(0.5), new nn.Linear(8, 2));

test("a perceptron's file gives its results for other batches, without dropout", async () => {
  const model = mlp().to(cpu);
  const read = await compareExport(cpu, folder, {
    name: "mlp",
    model,
    feeds: [{ x: randn([1, 4]) }, { x: randn([5, 4]) }],
  });
  assert.deepEqual(read.inputs, [{ name: "x", dtype: "f32", shape: ["batch", 4] }]);
  assert.deepEqual(read.outputs, [{ name: "output", dtype: "f32", shape: ["batch", 2] }]);
  assert.deepEqual(
    read.nodes.map(({ type }) => type),
    ["Gemm", "Gelu", "Gemm"],
  );
  assert.deepEqual(read.initializers.map(({ name }) => name).sort(), [
    "0.bias",
    "0.weight",
    "3.bias",
    "3.weight",
  ]);
});

test("the export leaves the modes of modules and every parameter as they were", () => {
  const model = mlp().to(cpu);
  model.eval();
  for (const [path, module] of model.namedModules()) if (path === "2") module.train();
  exportOnnx(model, join(folder, "modes.onnx"), [zeros([1, 4])]);
  const modes = [...model.namedModules()].map(([, { isTraining }]) => isTraining);
  assert.deepEqual(modes, [false, false, false, true, false]);
});

test("a convnet's file gives its results for other batches", async () => {
  const model = new nn.Sequential(
    ...[new nn.Conv2d(2, 4, 3, { padding: 1 }), new nn.BatchNorm2d(4), new nn.ReLU(), new nn.MaxPool2d(2)],
    ...[new nn.Conv2d(4, 6, 3), new nn.AvgPool2d(2), new nn.Flatten(), new nn.Linear(6, 3)],
  ).to(cpu);
  model.forward(rand([4, 2, 8, 8]));
  const feeds = [{ x: rand([2, 2, 8, 8]) }, { x: rand([3, 2, 8, 8]) }] as const;
  await compareExport(cpu, folder, { name: "convnet", model, feeds });
});

class TinyGpt extends nn.Module {
  readonly tokens = new nn.Embedding(7, 8);
  readonly positions = new nn.Embedding(16, 8);
  readonly block = new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16, normFirst: true });

  forward(ids: Tensor): Tensor {
    const [, length = 0] = ids.shape;
    const h = this.tokens.forward(ids).add(this.positions.weight.narrow(0, 0, length));
    return this.block.forward(h, { isCausal: true }).matmul(this.tokens.weight.t());
  }
}

const ids = (batch: number, length: number): Tensor =>
  tensor(
    Array.from({ length: batch }, (_, row) =>
      Array.from({ length }, (_, column) => (3 * row + 5 * column) % 7),
    ),
    { dtype: "i32" },
  );

test("a decoder's file gives its results for other batches and lengths", async () => {
  const model = new TinyGpt().to(cpu);
  const feeds = [{ ids: ids(1, 4) }, { ids: ids(2, 7) }] as const;
  const options = { dynamicAxes: { ids: { 0: "batch", 1: "sequence" } }, outputNames: ["logits"] };
  const read = await compareExport(cpu, folder, { name: "gpt", model, feeds, options });
  assert.deepEqual(read.outputs[0]?.shape, ["batch", "sequence", 7]);
});

test("weights above the limit are in a second file", async () => {
  const model = new nn.Sequential(new nn.Linear(64, 64), new nn.Linear(64, 3)).to(cpu);
  const own = join(folder, "external");
  const path = `${own}.onnx`;
  const { files } = exportOnnx(model, path, [zeros([1, 64])], { externalDataAbove: "1KiB" });
  assert.deepEqual(files, [path, `${path}_data`]);
  const inline = `${own}-inline.onnx`;
  exportOnnx(model, inline, [zeros([1, 64])]);
  assert.deepEqual(readModel(path).initializers, readModel(inline).initializers);
  const names = readdirSync(folder).filter((name) => name.startsWith("external"));
  assert.deepEqual(names.sort(), ["external-inline.onnx", "external.onnx", "external.onnx_data"]);
});

test("a loop that fills the columns of a tensor is exported, for any batch", async () => {
  const model = (x: Tensor): unknown => {
    const states = zeros([x.shape[0]!, 3, 4]);
    const first = states.select(1, 0);
    let state = x.select(1, 0).mul(0);
    for (let step = 0; step < 3; step++) {
      state = x.select(1, step).add(state).tanh();
      states.select(1, step).copy_(state);
    }
    states.narrow(2, 1, 2).mul_(2);
    return { states, first, last: states.narrow(1, 1, 2).transpose(1, 2).mul(1) };
  };
  const feeds = [{ x: randn([2, 3, 4]) }, { x: randn([5, 3, 4]) }] as const;
  await compareExport(cpu, folder, { name: "columns", model, feeds });
});

/** A view of a tensor [3, 4, 5], from a few numbers. */
function viewOf(whole: Tensor, numbers: readonly number[]): Tensor {
  let view = whole;
  for (const number of numbers) {
    const axis = number % view.ndim;
    const size = view.shape[axis]!;
    const start = (number >> 3) % size;
    if (number % 7 < 3) view = view.narrow(axis, start, 1 + ((number >> 5) % (size - start)));
    else if (number % 7 < 5 && view.ndim > 1) view = view.select(axis, start);
    else view = view.permute(view.shape.map((_, index) => (index + axis) % view.ndim));
  }
  return view;
}

test("writes to random views change the tensors that share their memory", async () => {
  const numbers = fc.array(fc.nat(1023), { minLength: 1, maxLength: 4 });
  const writes = fc.array(fc.tuple(numbers, numbers), { minLength: 1, maxLength: 4 });
  const property = fc.asyncProperty(writes, async (list) => {
    const model = (x: Tensor): unknown => {
      const whole = x.clone();
      const seen = list.map(([written, read], index) => {
        viewOf(whole, written).mul_(index + 2);
        return viewOf(whole, read);
      });
      return [whole, ...seen.map((view) => view.add(1))];
    };
    const options = { dynamicAxes: {} };
    await compareExport(cpu, folder, { name: "views", model, feeds: [{ x: randn([3, 4, 5]) }], options });
  });
  await fc.assert(property, { numRuns: 15 });
});

test("an op that ONNX lacks is rejected with its layer", () => {
  class Noise extends nn.Module {
    forward(x: Tensor): Tensor {
      return x.add(randn(x.shape));
    }
  }
  const model = new nn.Sequential(new nn.Linear(2, 2), new Noise()).to(cpu);
  rejects(
    "UNSUPPORTED",
    () => exportOnnx(model, join(folder, "noise.onnx"), [zeros([1, 2])]),
    /random in 1 can't be exported to ONNX: it draws random numbers/,
  );
});
