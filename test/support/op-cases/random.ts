/** Cases of random values: each distribution, in every shape. */

import fc from "fast-check";
import { random } from "../../../src/ops/index.js";
import { anyShape, call } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

const distributions = [
  { kind: "uniform", low: -1, high: 1 },
  { kind: "normal", mean: 1, std: 0.5 },
  { kind: "truncNormal", mean: 0, std: 1, low: -2, high: 2 },
  { kind: "exponential", rate: 2 },
  { kind: "integers", low: -3, count: 9 },
] as const;

export const randomCases: readonly OpCase[] = [
  opCase({
    op: random,
    gradients: "none",
    draw: (elements) =>
      fc
        .record({ shape: anyShape({ elements }), distribution: fc.constantFrom(...distributions) })
        .chain(({ shape, distribution }) => {
          const dtype = distribution.kind === "integers" ? "i32" : "f32";
          return call(["randomState"], fc.constant({ shape, distribution, dtype } as const));
        }),
  }),
];
