/** Calls that fill memory before they launch a kernel stay on the main stream: side streams run kernels only. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Device, nn, optim, type Tensor, zeros } from "holdfast";
import { emitCommands } from "../src/compile/execute/emit.js";
import { isLaunched } from "../src/compile/program/program.js";
import { planAllSchedules, storageWithoutMemory, withNullGpu } from "./support/null-gpu.js";

const [rows, columns, width] = [64, 32, 32];

/** The gradients of a gather and of two embeddings; updates at the end read them, so that they can wait. */
function makeStep(device: Device): () => void {
  const tables = [20_000, 40].map((entries) => new nn.Embedding(entries, width));
  const layers = Array.from({ length: 6 }, () => new nn.Linear(width, width));
  const source = new nn.Linear(columns, columns);
  const model = new nn.ModuleList<nn.Module>([...tables, ...layers, source]);
  for (const parameter of model.parameters()) parameter.initialize(nn.init.zeros());
  model.to(device);
  const inputs = zeros([rows, columns], { device });
  const indices = zeros([rows, width], { dtype: "i32", device });
  const ids = zeros([rows], { dtype: "i32", device });
  const optimizer = new optim.AdamW(model.parameters());
  return () => {
    let x: Tensor = source.forward(inputs).gather(1, indices);
    for (const layer of layers) x = layer.forward(x).relu();
    for (const table of tables) x = x.add(table.forward(ids));
    x.square().mean().backward();
    optimizer.step();
    optimizer.zeroGrad();
  };
}

test("a call counts as launched if all of its commands are launches, and only such calls are on side streams", () => {
  const seen = new Set<string>();
  withNullGpu(
    "f32",
    (device) => {
      for (const { schedule } of planAllSchedules(device, makeStep(device))) {
        const calls = schedule.calls.map(({ call }) => call);
        const commands = emitCommands(device.runtime, calls, storageWithoutMemory);
        for (const [index, { call, stream }] of schedule.calls.entries()) {
          const kinds = commands.flatMap(({ call: from, command }) => (from === index ? [command.kind] : []));
          const hasOnlyLaunches = kinds.every((kind) => kind === "launch");
          assert.equal(isLaunched(call), hasOnlyLaunches, `${call.op}: ${kinds}`);
          assert.ok(hasOnlyLaunches || stream === 0, call.op);
          seen.add(call.work.kind);
        }
      }
    },
    { multiprocessors: 4 },
  );
  for (const kind of ["scatter", "row-map", "fill", "row"])
    assert.ok(seen.has(kind), `no ${kind} of ${[...seen]}`);
});
