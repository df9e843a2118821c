/** SparseAdam on embeddings: PyTorch's formulas in f64, rows without a gradient keep their bits, eager and compiled. */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Device, nn, optim, type Tensor, tensor } from "holdfast";
import { strict } from "holdfast/internals";
import { openStrictDevice } from "./support/devices.js";
import { isThorough } from "./support/effort.js";
import { cudaMissing } from "./support/kernel-runtime.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";
import { openTestGpu, testEnvironment } from "./support/test-device.js";

interface Case {
  readonly rows: number;
  readonly width: number;
  /** The indices of each step. */
  readonly steps: readonly (readonly number[])[];
  readonly paddingIdx?: number;
  readonly options?: optim.SparseAdamOptions;
}

const cases: Readonly<Record<string, Case>> = {
  "duplicates, and rows that are never used": {
    ...{ rows: 9, width: 6 },
    steps: [
      [3, 1, 3, 3, 7, 1, 5],
      [1, 1, 0, 7, 7, 0, 0],
      [3, 3, 3, 3, 3, 3, 3],
    ],
  },
  "one index": { rows: 5, width: 3, steps: [[4], [4], [0], [4]] },
  "one column": {
    rows: 6,
    width: 1,
    steps: [
      [5, 0, 5],
      [2, 2, 2],
      [5, 5, 0],
    ],
    options: { maximize: true },
  },
  "wide rows, and an index that gets no gradient": {
    ...{ rows: 4, width: 301, paddingIdx: 2, options: { lr: 0.1, betas: [0.5, 0.75], eps: 0.01 } },
    steps: [
      [2, 0, 2],
      [0, 2, 3],
      [2, 2, 2],
      [3, 3, 0],
    ],
  },
};

const upstreamOf = (step: number, count: number, width: number): number[] =>
  Array.from({ length: count * width }, (_, element) => Math.sin(step * 31.7 + element * 1.3 + 0.1));

const initialOf = ({ rows, width }: Case): number[] =>
  Array.from({ length: rows * width }, (_, element) => Math.cos(element * 0.7));

/** PyTorch's documented formulas, row by row. Returns the table after each step. */
function trainPlainly(oneCase: Case): readonly (readonly number[])[] {
  const { rows, width, steps, paddingIdx, options = {} } = oneCase;
  const { lr = 1e-3, betas: [beta1, beta2] = [0.9, 0.999], eps = 1e-8, maximize = false } = options;
  const table = initialOf(oneCase);
  const [m, v] = [table.map(() => 0), table.map(() => 0)];
  return steps.map((indices, step) => {
    const upstream = upstreamOf(step, indices.length, width);
    const used = new Set(indices.filter((index) => index !== paddingIdx));
    const size = (lr * Math.sqrt(1 - beta2 ** (step + 1))) / (1 - beta1 ** (step + 1));
    for (const row of Array(rows).keys()) {
      if (!used.has(row)) continue;
      for (const column of Array(width).keys()) {
        let sum = 0;
        for (const [entry, index] of indices.entries())
          if (index === row) sum += upstream[entry * width + column]!;
        const at = row * width + column;
        const g = maximize ? -sum : sum;
        m[at]! += (1 - beta1) * (g - m[at]!);
        v[at]! += (1 - beta2) * (g * g - v[at]!);
        table[at]! -= (size * m[at]!) / (Math.sqrt(v[at]!) + eps);
      }
    }
    return [...table];
  });
}

interface Training {
  readonly weight: Tensor;
  readonly optimizer: optim.Optimizer<optim.SparseAdamOptions>;
  run(step: number): void;
}

function prepare(
  device: Device,
  oneCase: Case,
  mode: "eager" | "compiled",
  dtype: "f32" | "f64" = "f64",
): Training {
  const { rows, width, steps, paddingIdx } = oneCase;
  const weight = tensor(initialOf(oneCase), { device, dtype }).reshape([rows, width]).detach();
  weight.requiresGrad = true;
  const optimizer = new optim.SparseAdam([weight], oneCase.options);
  const body = (index: Tensor, upstream: Tensor): void => {
    optimizer.zeroGrad();
    const options = paddingIdx === undefined ? {} : { paddingIdx };
    nn.functional.embedding(index, weight, options).mul(upstream).sum().backward();
    optimizer.step();
  };
  const eager = (index: Tensor, upstream: Tensor): void => device.step(() => body(index, upstream));
  const step = mode === "compiled" ? device.compile(body, { passes: { autotune: false } }) : eager;
  return {
    weight,
    optimizer,
    run(number) {
      const indices = steps[number]!;
      const upstream = upstreamOf(number, indices.length, width);
      step(
        tensor([...indices], { device, dtype: "i32" }),
        tensor(upstream, { device, dtype }).reshape([indices.length, width]),
      );
    },
  };
}

function openGpu(): Device {
  const driver = openTestGpu();
  const quiet = { stallAfter: "off", environment: testEnvironment, print: () => {} } as const;
  const gpu = new Device("cuda", {
    ...{ driver: strict(driver), memory: "256MiB", poison: true, capture: "off", ...quiet },
  });
  after(() => {
    gpu.close();
    driver.close();
  });
  return gpu;
}

const devices = [
  { name: "the device under test", isCuda: false, skip: false, open: openStrictDevice },
  { name: "CUDA", isCuda: true, skip: cudaMissing, open: openGpu },
] as const;

for (const { name, isCuda, skip, open } of devices) {
  describe(`on ${name}`, { skip }, () => {
    const device = open();

    for (const [number, [what, oneCase]] of Object.entries(cases).entries()) {
      for (const mode of ["eager", "compiled"] as const) {
        // The emulator compiles every kernel: a quick run tries each case in one mode there.
        if (isCuda && !isThorough && (mode === "eager") !== (number % 2 === 0)) continue;
        test(`${mode}: PyTorch's numbers, and unused rows keep their bits: ${what}`, () => {
          const { weight, optimizer, run } = prepare(device, oneCase, mode);
          const { rows, width, steps, paddingIdx } = oneCase;
          const read = () => {
            const { "0.firstMoment": m, "0.secondMoment": v } = optimizer.stateDict();
            return [weight, m!, v!].map((one) => Float64Array.from(one.dataSync()));
          };
          for (const [step, expected] of trainPlainly(oneCase).entries()) {
            const before = read();
            run(step);
            const state = read();
            for (const [element, value] of state[0]!.entries())
              assert.ok(Math.abs(value - expected[element]!) <= 1e-12, `element ${element} of step ${step}`);
            for (const row of Array(rows).keys()) {
              const range = [row * width, (row + 1) * width] as const;
              const isUsed = row !== paddingIdx && steps[step]!.includes(row);
              for (const [kind, values] of state.entries()) {
                const [old, current] = [before[kind]!.slice(...range), values.slice(...range)];
                if (isUsed) assert.notDeepEqual(current, old, `row ${row} changes in step ${step}`);
                else sameBytes(current, old, `row ${row} in step ${step}`);
              }
            }
          }
          assert.equal(optimizer.stateDict()["0.step"]!.item(), steps.length);
        });
      }
    }
  });
}

const device = openStrictDevice();
const duplicates = cases["duplicates, and rows that are never used"]!;

test("red proof: Adam changes rows that have no gradient in the step", () => {
  const { weight } = prepare(device, duplicates, "eager");
  const adam = new optim.Adam([weight]);
  for (const index of [[0], [1]]) {
    const before = weight.dataSync();
    adam.zeroGrad();
    nn.functional
      .embedding(tensor(index, { device, dtype: "i32" }), weight)
      .sum()
      .backward();
    adam.step();
    const isKept = weight.dataSync()[0] === before[0];
    assert.equal(isKept, false, "row 0 moves on its momentum");
  }
});

test("a group of Adam or AdamW with the option sparse is updated as by SparseAdam, and the others are not", () => {
  const { run, weight } = prepare(device, duplicates, "eager", "f32");
  for (const step of duplicates.steps.keys()) run(step);
  for (const Optimizer of [optim.Adam, optim.AdamW]) {
    const { weight: table } = prepare(device, duplicates, "eager", "f32");
    const dense = tensor([1, 2], { device, requiresGrad: true });
    const optimizer = new Optimizer([{ params: [table], sparse: true, weightDecay: 0 }, { params: [dense] }]);
    for (const [step, indices] of duplicates.steps.entries()) {
      optimizer.zeroGrad();
      const upstream = tensor(upstreamOf(step, indices.length, 6), { device }).reshape([indices.length, 6]);
      const index = tensor([...indices], { device, dtype: "i32" });
      const loss = nn.functional.embedding(index, table).mul(upstream).sum();
      loss.add(dense.mul(tensor([step === 0 ? 1 : 0, 1], { device })).sum()).backward();
      const before = dense.dataSync();
      optimizer.step();
      assert.notEqual(dense.dataSync()[0], before[0]);
    }
    sameBytes(table.dataSync(), weight.dataSync(), "the table");
  }
});

test("weight decay is rejected in sparse groups: by the constructor, later, and in a loaded state", () => {
  const weight = tensor([[1], [2]], { device, requiresGrad: true });
  rejects(
    "BAD_ARGUMENT",
    () => new optim.AdamW([weight], { sparse: true }),
    /AdamW: weightDecay is 0.01 in a sparse group.*Set weightDecay: 0/,
  );
  const optimizer = new optim.SparseAdam([weight]);
  const setDecay = (): void => {
    optimizer.groups[0]!.weightDecay = 0.1;
  };
  rejects("BAD_ARGUMENT", setDecay, /in a sparse group/);
  const state = new optim.Adam([weight], { lr: 0.5, weightDecay: 0.1 }).stateDict();
  rejects("BAD_ARGUMENT", () => optimizer.loadStateDict(state), /in a sparse group/);
  assert.equal(optimizer.lr, 1e-3, "nothing was loaded");
});

test("a compiled step with a bad index changes no row, and the next step goes on", () => {
  const oneCase = {
    ...duplicates,
    steps: [
      [1, 2],
      [1, 99],
      [1, 2],
    ],
  };
  const { weight, run } = prepare(device, oneCase, "compiled");
  run(0);
  const before = weight.dataSync();
  run(1);
  sameBytes(weight.dataSync(), before, "the table");
  run(2);
  assert.notDeepEqual(weight.dataSync(), before);
});
