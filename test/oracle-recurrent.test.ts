/** Recurrent layers: outputs, final states and all gradients equal PyTorch's, and compiled steps have the bits of eager ones. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { nn, noGrad, Tensor, tensor } from "holdfast";
import { toCamelCase } from "../scripts/coverage/coverage.js";
import { openStrictDevice } from "./support/devices.js";
import { isThorough } from "./support/effort.js";
import { readRepositoryFile } from "./support/repository.js";
import { isNear, type Tolerance } from "./tolerances.js";

type Nested = number | readonly Nested[];
type Named = Readonly<Record<string, Nested>>;

interface RecurrentCase {
  readonly kind: "RNN" | "LSTM" | "GRU" | "RNNCell" | "LSTMCell" | "GRUCell";
  readonly options: Readonly<Record<string, unknown>>;
  readonly lengths: readonly number[] | null;
  readonly parameters: Named;
  readonly x: Nested;
  readonly initial: readonly Nested[];
  readonly results: readonly Nested[];
  readonly upstream: readonly Nested[];
  readonly gradients: {
    readonly x: Nested;
    readonly initial: readonly Nested[];
    readonly parameters: Named;
  };
}

type Layer = nn.Module & { forward(...operands: readonly unknown[]): unknown };

const device = openStrictDevice();
const { cases } = JSON.parse(readRepositoryFile("test/oracle/recurrent.json")) as {
  readonly cases: readonly RecurrentCase[];
};

const isLstm = ({ kind }: RecurrentCase): boolean => kind.startsWith("LSTM");

function moduleOf({ kind, options, parameters }: RecurrentCase, float: "f32" | "f64"): Layer {
  const named = Object.entries(options).map(([name, value]) => [toCamelCase(name), value]);
  const Module = nn[kind] as unknown as new (...values: readonly unknown[]) => Layer;
  const module = new Module(2, 3, Object.fromEntries(named)).to(device, float);
  const renamed = Object.entries(parameters).map(
    ([name, values]) => [toCamelCase(name), tensor(values as number[], { device })] as const,
  );
  module.loadStateDict(Object.fromEntries(renamed));
  return module;
}

/** The results of a call, and the gradients of its operands. */
function run(
  recurrentCase: RecurrentCase,
  module: Layer,
  operands: readonly Tensor[],
): { readonly results: Tensor[]; readonly gradients: Tensor[] } {
  const { lengths, upstream } = recurrentCase;
  const [x, ...initial] = operands.map((operand) => {
    const leaf = operand.clone();
    leaf.requiresGrad = true;
    return leaf;
  });
  const states = initial.length === 0 ? undefined : isLstm(recurrentCase) ? initial : initial[0];
  const result = module.forward(x, states, lengths ? { lengths } : {}) as Tensor | readonly Tensor[];
  const results = (result instanceof Tensor ? [result] : result).flat() as Tensor[];
  results
    .map((each, index) => {
      const { dtype } = each;
      return each.mul(tensor(upstream[index] as number[], { device, dtype })).sum();
    })
    .reduce((sum, term) => sum.add(term))
    .backward();
  return { results, gradients: [x!, ...initial].map((leaf) => leaf.grad!) };
}

function uploaded({ x, initial }: RecurrentCase, dtype: "f32" | "f64"): Tensor[] {
  return [x, ...initial].map((values) => tensor(values as number[], { device, dtype }));
}

function requireNear(actual: unknown, expected: Nested, tolerance: Tolerance, what: string): void {
  const [numbers, wanted] = [[actual], [expected]].map((nested) => nested.flat(4) as number[]);
  assert.equal(numbers!.length, wanted!.length, what);
  for (const [at, value] of wanted!.entries())
    assert.ok(isNear(numbers![at]!, value, tolerance), `${what} at ${at}: ${numbers![at]}, not ${value}`);
}

const tolerance = { f64: { relative: 1e-10, absolute: 1e-10 }, f32: { relative: 1e-5, absolute: 5e-6 } };

function check(recurrentCase: RecurrentCase, float: "f32" | "f64", module: Layer): void {
  const { results, gradients } = recurrentCase;
  device.step(() => {
    const actual = run(recurrentCase, module, uploaded(recurrentCase, float));
    for (const [index, expected] of results.entries())
      requireNear(actual.results[index]!.tolist(), expected, tolerance[float], `result ${index}`);
    for (const [index, expected] of [gradients.x, ...gradients.initial].entries())
      requireNear(actual.gradients[index]!.tolist(), expected, tolerance[float], `gradient ${index}`);
  });
  for (const [name, expected] of Object.entries(gradients.parameters)) {
    const parameter = new Map(module.namedParameters()).get(toCamelCase(name));
    requireNear(parameter!.grad!.tolist(), expected, tolerance[float], name);
  }
}

for (const [index, recurrentCase] of cases.entries()) {
  const { kind, options, lengths } = recurrentCase;
  const float = index % 2 === 0 ? "f64" : "f32";
  test(`${kind} ${JSON.stringify(options)}${lengths ? ` of lengths ${lengths}` : ""} in ${float} is PyTorch's`, () => {
    check(recurrentCase, float, moduleOf(recurrentCase, float));
  });
}

/** In a quick run: layers in both directions, with and without lengths. */
const compiledCases = isThorough
  ? cases
  : cases.filter(({ options: { bidirectional = false } }) => bidirectional).slice(2);
test("compiled layers have the bits of eager ones", () => {
  for (const recurrentCase of compiledCases) {
    const [eager, compiled] = [moduleOf(recurrentCase, "f32"), moduleOf(recurrentCase, "f32")];
    const operands = uploaded(recurrentCase, "f32");
    const listed = (module: Layer, tensors: readonly Tensor[]): unknown[] => [
      ...tensors.map((each) => each.tolist()),
      ...module.parameters().map(({ grad }) => grad?.tolist()),
    ];
    const runAll = (module: Layer, inputs: Tensor[]): Tensor[] =>
      Object.values(run(recurrentCase, module, inputs)).flat();
    const expected = device.step(() => listed(eager, runAll(eager, operands)));
    const step = device.compile((...inputs: Tensor[]) => runAll(compiled, inputs));
    assert.deepEqual(listed(compiled, step(...operands)), expected);
    step.close();
  }
});

test("red proof: a weight that is off by 1e-6 in f64 is found", () => {
  const [first] = cases;
  const module = moduleOf(first!, "f64");
  const [weight] = module.parameters();
  noGrad(() => weight!.mul_(1 + 1e-6));
  assert.throws(() => check(first!, "f64", module), assert.AssertionError);
});
