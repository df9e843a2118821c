/** Modules: state dicts of tensors and of stored elements, strict and loose, whole or not at all. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { refuses } from "../../test/support/refuses.js";
import { sameNamedBytes } from "../../test/support/same-bytes.js";
import { type Device, device, ones, tensor } from "../tensor/index.js";
import * as nn from "./index.js";

let cpu: Device;
before(async () => {
  cpu = await device("cpu", { print: () => {}, memory: "64MiB" });
});
after(() => cpu.close());

const makeModel = (): nn.Sequential =>
  new nn.Sequential(new nn.Linear(3, 4), new nn.ReLU(), new nn.Linear(4, 2)).to(cpu);

const valuesOf = (module: nn.Module): Record<string, ArrayBufferView> =>
  Object.fromEntries([...module.namedParameters()].map(([name, parameter]) => [name, parameter.dataSync()]));

function storedAs(
  dtype: "f32" | "f64" | "bf16",
  values: readonly number[],
  shape: readonly number[],
): nn.StoredElements {
  const bits = new Uint16Array(Float32Array.from(values).buffer).filter((_, index) => index % 2 === 1);
  const array = { f32: Float32Array.from(values), f64: Float64Array.from(values), bf16: bits }[dtype];
  return { dtype, shape, bytes: new Uint8Array(array.buffer) };
}

test("a state of tensors carries every bit from one module to another, in one copy", () => {
  const [from, to] = [makeModel(), makeModel()];
  const before = cpu.runtime.diagnostics().transfers.up.copies;
  assert.deepEqual(to.loadStateDict(from.stateDict()), { missing: [], unexpected: [] });
  assert.equal(cpu.runtime.diagnostics().transfers.up.copies - before, 1);
  sameNamedBytes(valuesOf(to), valuesOf(from), "the loaded module");
});

test("stored elements are taken as they are, and converted where their dtype is another", () => {
  const layer = new nn.Linear(2, 1).to(cpu);
  for (const dtype of ["f32", "f64", "bf16"] as const) {
    const state = { weight: storedAs(dtype, [1.5, -2], [1, 2]), bias: storedAs("f32", [0.25], [1]) };
    layer.loadStateDict(state);
    assert.deepEqual([layer.weight.tolist(), layer.bias?.tolist()], [[[1.5, -2]], [0.25]], dtype);
    layer.weight.initialize(nn.init.zeros());
  }
  const half = new nn.Linear(2, 1, { bias: false }).to(cpu, "bf16");
  half.loadStateDict({ weight: storedAs("bf16", [1.5, -2], [1, 2]) });
  assert.deepEqual(half.weight.tolist(), [[1.5, -2]]);
});

test("strict loading refuses names that only one side has; loose loading gives them back", () => {
  const model = makeModel();
  const state = { "0.weight": ones([4, 3]), extra: ones([1]) };
  refuses(
    "BAD_STATE",
    () => model.loadStateDict(state),
    /missing in the state: 0.bias, 2.weight, 2.bias; not in the module: extra\. Pass strict: false/,
  );
  const result = model.loadStateDict(state, { strict: false });
  assert.deepEqual(result, { missing: ["0.bias", "2.weight", "2.bias"], unexpected: ["extra"] });
  assert.deepEqual(model.stateDict()["0.weight"]?.tolist(), ones([4, 3]).tolist());
});

test("a wrong shape, or bytes that are too few, is refused either way, and nothing is written", () => {
  const model = makeModel();
  const before = valuesOf(model);
  const good = { "0.weight": ones([4, 3]), "0.bias": ones([4]), "2.weight": ones([2, 4]) };
  for (const strict of [true, false]) {
    const misshapen = { ...good, "2.bias": ones([3]) };
    const message = /2.bias is \[3\] in the state and \[2\] in the module/;
    refuses("BAD_STATE", () => model.loadStateDict(misshapen, { strict }), message);
    const short = { ...good, "2.bias": { dtype: "f32", shape: [2], bytes: new Uint8Array(4) } } as const;
    refuses("BAD_STATE", () => model.loadStateDict(short, { strict }), /2.bias has 4 bytes .* takes 8/);
  }
  sameNamedBytes(valuesOf(model), before, "the module");
});

test("a state for a module on no device is refused", () => {
  const state = { weight: tensor([[1]]), bias: tensor([1]) };
  refuses("NO_DEVICE", () => new nn.Linear(1, 1).loadStateDict(state), /model\.to\(cpu\)/);
});

test("loading after a forward pass is seen by backward: what it saved has changed", () => {
  const layer = new nn.Linear(2, 2).to(cpu);
  cpu.step(() => {
    const x = ones([1, 2]);
    x.requiresGrad = true;
    const loss = layer.forward(x).sum();
    layer.loadStateDict({ weight: ones([2, 2]), bias: ones([2]) });
    refuses("SAVED_CHANGED", () => loss.backward());
  });
});
