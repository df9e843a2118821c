/** Modules: state dicts, strict and not, their parameters and submodules, and errors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { openDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { sameNamedBytes } from "../../test/support/same-bytes.js";
import { ones, type Tensor, tensor } from "../tensor/index.js";
import * as nn from "./index.js";

const cpu = openDevice();

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

test("loading a state of tensors copies every bit to another module, in one copy", () => {
  const [from, to] = [makeModel(), makeModel()];
  const before = cpu.runtime.diagnostics().transfers.up.copies;
  assert.deepEqual(to.loadStateDict(from.stateDict()), { missing: [], unexpected: [] });
  assert.equal(cpu.runtime.diagnostics().transfers.up.copies - before, 1);
  sameNamedBytes(valuesOf(to), valuesOf(from), "the loaded module");
});

test("stored elements are loaded, and converted if their dtype differs", () => {
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

test("strict loading rejects missing and unexpected names; non-strict loading returns them", () => {
  const model = makeModel();
  const state = { "0.weight": ones([4, 3]), extra: ones([1]) };
  rejects(
    "BAD_STATE",
    () => model.loadStateDict(state),
    /missing in the state: 0.bias, 2.weight, 2.bias; not in the module: extra\. Pass strict: false/,
  );
  const result = model.loadStateDict(state, { strict: false });
  assert.deepEqual(result, { missing: ["0.bias", "2.weight", "2.bias"], unexpected: ["extra"] });
  assert.deepEqual(model.stateDict()["0.weight"]?.tolist(), ones([4, 3]).tolist());
});

test("a wrong shape or too few bytes are rejected in both modes, and nothing is written", () => {
  const model = makeModel();
  const before = valuesOf(model);
  const good = { "0.weight": ones([4, 3]), "0.bias": ones([4]), "2.weight": ones([2, 4]) };
  for (const strict of [true, false]) {
    const misshapen = { ...good, "2.bias": ones([3]) };
    const message = /2.bias is \[3\] in the state and \[2\] in the module/;
    rejects("BAD_STATE", () => model.loadStateDict(misshapen, { strict }), message);
    const short = { ...good, "2.bias": { dtype: "f32", shape: [2], bytes: new Uint8Array(4) } } as const;
    rejects("BAD_STATE", () => model.loadStateDict(short, { strict }), /2.bias has 4 bytes .* takes 8/);
  }
  sameNamedBytes(valuesOf(model), before, "the module");
});

test("a module without a device rejects a state", () => {
  const state = { weight: tensor([[1]]), bias: tensor([1]) };
  rejects("NO_DEVICE", () => new nn.Linear(1, 1).loadStateDict(state), /model\.to\(cpu\)/);
});

test("backward rejects saved tensors that a load after forward has changed", () => {
  const layer = new nn.Linear(2, 2).to(cpu);
  cpu.step(() => {
    const x = ones([1, 2]);
    x.requiresGrad = true;
    const loss = layer.forward(x).sum();
    layer.loadStateDict({ weight: ones([2, 2]), bias: ones([2]) });
    rejects("SAVED_CHANGED", () => loss.backward());
  });
});

class Holder extends nn.Module {
  readonly list = [new nn.Linear(2, 2), new nn.Linear(2, 2, { bias: false })];
  readonly byName = { a: new nn.Linear(1, 1, { bias: false }) };
  readonly scales = [new nn.Parameter([1], nn.init.ones())];
  readonly shape = [2, 2];
}

test("modules and parameters in arrays and plain objects belong to a module", () => {
  assert.deepEqual(
    [...new Holder().namedParameters()].map(([name]) => name),
    ["scales.0", "list.0.weight", "list.0.bias", "list.1.weight", "byName.a.weight"],
  );
});

const scale = (): nn.Parameter => new nn.Parameter([1], nn.init.ones());
const namesOf = (module: nn.Module): string[] => [...module.namedParameters()].map(([name]) => name);

class Deep extends nn.Module {
  readonly byKey = new Map<unknown, unknown>([
    ["query", scale()],
    [7, { inner: [scale()] }],
    [{}, scale()],
  ]);
  readonly unordered = new Set([scale(), scale()]);
  readonly nested = [[scale()], { a: { b: scale() } }, new Map([["k", [scale()]]])];
  readonly bare: Record<string, unknown> = Object.assign(Object.create(null), { x: scale() });
  readonly data = [1, "two", null, undefined, [3, 4], new Float32Array(2)];
  readonly self: unknown[] = [];
}

test("modules and parameters are found in Maps, Sets and containers in containers, with stable names", () => {
  const deep = new Deep();
  deep.self.push(deep.self, scale());
  const names = [
    ...["byKey.query", "byKey.7.inner.0", "byKey.2", "unordered.0", "unordered.1"],
    ...["nested.0.0", "nested.1.a.b", "nested.2.k.0", "bare.x", "self.1"],
  ];
  assert.deepEqual(namesOf(deep), names);
  deep.to(cpu);
  assert.ok(deep.parameters().every(({ isPlaced }) => isPlaced));
});

class Hiding extends nn.Module {
  readonly #layer: nn.Linear;

  constructor(isRegistered: boolean) {
    super();
    this.#layer = new nn.Linear(2, 1);
    if (isRegistered) this.registerModule("layer", this.#layer);
  }

  forward(): unknown {
    return this.#layer.forward(ones([1, 2], { device: cpu }));
  }
}

test("a layer in a #private field is not found; the error explains why, and its advice works", () => {
  const unregistered = new Hiding(false).to(cpu);
  rejects(
    "NO_DEVICE",
    () => unregistered.forward(),
    /but not #private fields.*registerModule\(name, layer\)/,
  );
  const registered = new Hiding(true).to(cpu);
  assert.deepEqual(namesOf(registered), ["layer.weight", "layer.bias"]);
  assert.match(String(registered), /\(layer\): Linear/);
  registered.eval();
  assert.ok([...registered.namedModules()].every(([, { isTraining }]) => !isTraining));
  registered.forward();
});

test("registered items come after the fields, each with a unique name", () => {
  const module = new nn.ModuleList();
  const [parameter, other] = [scale(), scale()];
  assert.equal(module.registerParameter("one", parameter), parameter);
  module.registerParameter("one", parameter);
  assert.deepEqual(namesOf(module), ["one"]);
  rejects("BAD_ARGUMENT", () => module.registerParameter("one", other), /the name is already used/);
  rejects("BAD_ARGUMENT", () => module.registerParameter("a.b", other), /without dots/);
  rejects("BAD_ARGUMENT", () => module.registerParameter("", other), /without dots/);
  rejects(
    "BAD_ARGUMENT",
    () => module.registerModule("x", parameter as never),
    /takes a module as its second argument/,
  );
  rejects(
    "BAD_ARGUMENT",
    () => module.registerParameter("x", module as never),
    /takes a parameter as its second argument/,
  );
  const clash = new Deep();
  clash.byKey.set("7", { inner: [scale()] });
  rejects("BAD_ARGUMENT", () => clash.parameters(), /Deep has two items with the name "byKey\.7\.inner\.0"/);
});

test("a container's subclass has its fields and registered modules after its list", () => {
  class Stack extends nn.Sequential {
    readonly tail = new nn.Linear(1, 1, { bias: false });
  }
  const stack = new Stack(new nn.Linear(1, 1, { bias: false }));
  stack.registerModule("more", new nn.Linear(1, 1, { bias: false }));
  assert.deepEqual(namesOf(stack), ["0.weight", "tail.weight", "more.weight"]);
});

test("a weight that two layers share is one parameter, and its gradient is the sum of both", () => {
  const [words, head] = [new nn.Embedding(3, 2), new nn.Linear(2, 3, { bias: false })];
  head.weight = words.weight;
  const tied = new nn.ModuleList<nn.Module>([words, head]).to(cpu);
  assert.deepEqual(
    tied.parameters().map(({ name }) => name),
    ["0.weight"],
  );
  head
    .forward(words.forward(tensor([0], { dtype: "i32", device: cpu })))
    .sum()
    .backward();
  const [first, ...others] = words.weight.grad!.tolist() as number[][];
  const rows = words.weight.tolist() as number[][];
  const sums = [0, 1].map((column) => Math.fround(rows.reduce((sum, row) => sum + row[column]!, 0)));
  // From the embedding, row 0 gets the sum of all rows; from the head, every row gets row 0.
  for (const [column, value] of rows[0]!.entries()) {
    assert.ok(Math.abs(first![column]! - (sums[column]! + value)) < 1e-6);
    for (const other of others) assert.equal(other[column], value);
  }
});

test("a module prints its layers, also through console.log", () => {
  assert.match(inspect(makeModel()), /^Sequential\(\n {2}\(0\): Linear\(inFeatures=3/);
});

test("apply visits every module, the outermost last", () => {
  const visited: string[] = [];
  new nn.Sequential(new nn.Linear(1, 1), new nn.ReLU()).apply((module) =>
    visited.push(module.constructor.name),
  );
  assert.deepEqual(visited, ["Linear", "ReLU", "Sequential"]);
});

test("a dtype alone converts a module that is on a device; other arguments say what to write", () => {
  const layer = new nn.Linear(2, 1);
  rejects("NO_DEVICE", () => layer.to("bf16"), /Linear\.to: .*model\.to\(cpu, "bf16"\)/);
  layer.to(cpu).weight.initialize(nn.init.ones());
  assert.deepEqual([layer.to("f64").weight.dtype, layer.weight.tolist()], ["f64", [[1, 1]]]);
  const wrong = (value: unknown) => value as never;
  rejects(
    "BAD_ARGUMENT",
    () => layer.to(wrong("cuda")),
    /Linear\.to: the device is "cuda"\. Pass an open device/,
  );
  rejects("BAD_DTYPE", () => layer.to(cpu, wrong("float16")), /unknown dtype "float16"\. Pass "f16"/);
});

test("a module that does not fit leaves no memory allocated", () => {
  const small = openDevice({ memory: "34MiB" });
  const large = new Holder();
  large.scales.push(new nn.Parameter([2048, 2048], nn.init.zeros()));
  const before = small.runtime.budget.used;
  // The weights fit, but their gradients do not.
  rejects("OUT_OF_BUDGET", () => large.to(small), /gradients/);
  assert.equal(small.runtime.budget.used, before);
});

test("loss modules apply their options", () => {
  const [logits, labels] = [ones([2, 4], { device: cpu }), tensor([0, 3], { dtype: "i32", device: cpu })];
  assert.equal(new nn.CrossEntropyLoss().forward(logits, labels).item(), Math.fround(Math.log(4)));
  const single = new nn.CrossEntropyLoss({ reduction: "none" }).forward(logits, labels);
  assert.deepEqual(single.shape, [2]);
});

test("labels of floats are rejected, with advice to convert them", () => {
  rejects(
    "BAD_SHAPE",
    () => nn.functional.crossEntropy(ones([2, 4], { device: cpu }), tensor([0, 3], { device: cpu })),
    /target of f32 \[2\].*Labels are whole numbers: convert them with to\("i32"\)/,
  );
});

class Statistics extends nn.Module {
  readonly scale = new nn.Parameter([2], nn.init.ones());
  readonly mean = new nn.Buffer([2], nn.init.constant(0.5), { staysF32: true });
  readonly count = new nn.Buffer([], nn.init.zeros(), { dtype: "i32" });
  readonly table = new nn.Buffer([3], () => [1, 2, 3], { persistent: false });
  readonly #shift = this.registerBuffer("shift", tensor([7, 8]));

  get shift(): nn.Buffer {
    return this.#shift;
  }
}

test("buffers move and are converted with their module, are in its state unless they are not persistent, and are no parameters", () => {
  const model = new Statistics().to(cpu, "bf16");
  const buffers = [...model.namedBuffers()].map(([name, { dtype, device }]) => [name, dtype, device === cpu]);
  assert.deepEqual(buffers, [
    ["mean", "f32", true],
    ["count", "i32", true],
    ["table", "bf16", true],
    ["shift", "bf16", true],
  ]);
  assert.deepEqual(Object.keys(model.stateDict()), ["scale", "mean", "count", "shift"]);
  assert.deepEqual([model.parameters().length, model.parameterCount, model.buffers().length], [1, 2, 4]);
  assert.deepEqual([model.shift.tolist(), model.shift.requiresGrad], [[7, 8], false]);
});

test("a state with buffers is saved and loaded, and values survive a move to another dtype", () => {
  const [from, to] = [new Statistics().to(cpu), new Statistics().to(cpu)];
  from.mean.add_(1);
  from.count.add_(3);
  to.loadStateDict(from.stateDict());
  assert.deepEqual([to.mean.tolist(), to.count.item()], [[1.5, 1.5], 3]);
  to.to(cpu, "f64");
  assert.deepEqual([to.mean.dtype, to.mean.tolist(), to.table.dtype], ["f64", [1.5, 1.5], "f64"]);
  rejects(
    "BAD_STATE",
    () => to.loadStateDict({ scale: ones([2]) }),
    /missing in the state: mean, count, shift/,
  );
});

test("a compiled step updates a buffer on every call, as an eager step does", () => {
  const model = new Statistics().to(cpu);
  const step = cpu.compile((x: Tensor) => model.mean.mul_(0.5).add_(x).sum());
  const sums = [1, 2, 3].map((value) => step(ones([2]).mul(value)).item());
  assert.deepEqual(sums, [2.5, 5.25, 8.625]);
  assert.deepEqual(model.mean.tolist(), [4.3125, 4.3125]);
});

test("what is no tensor, and a parameter, are no buffers; a buffer that was never placed says so", () => {
  const model = new Statistics();
  rejects("BAD_ARGUMENT", () => model.registerBuffer("a", 3 as never), /takes a tensor that is no parameter/);
  rejects(
    "BAD_ARGUMENT",
    () => model.registerBuffer("a", model.scale),
    /takes a tensor that is no parameter/,
  );
  rejects("BAD_ARGUMENT", () => model.registerBuffer("a.b", ones([1])), /a text without dots/);
  rejects("NO_DEVICE", () => model.mean.tolist(), /is not on a device yet/);
});

test("a parameter that is frozen when it is placed has memory for a gradient only once it is trained", () => {
  const gradientBytes = (): number => cpu.diagnostics().budget.usedByLabel.gradients;
  const before = gradientBytes();
  const model = new nn.Sequential(new nn.Linear(3, 4), new nn.Linear(4, 2));
  model.requiresGrad_(false).to(cpu);
  assert.equal(gradientBytes(), before);
  const [, last] = model;
  last?.requiresGrad_(true);
  assert.ok(gradientBytes() > before);
  model
    .forward(ones([2, 3]))
    .sum()
    .backward();
  assert.deepEqual(
    model.parameters().map(({ grad }) => grad?.shape),
    [undefined, undefined, [2, 4], [2]],
  );
  model.to(cpu, "bf16");
  model
    .forward(ones([2, 3], { dtype: "bf16" }))
    .sum()
    .backward();
  assert.deepEqual(model.parameters()[3]?.grad?.tolist(), [2, 2]);
});
