/** Cases of matrix products: vectors, matrices, batches and broadcast batches, also with sizes of 0 and 1. */

import fc from "fast-check";
import {
  batchedLinear,
  fusedProjections,
  linear,
  loraLinear,
  matmul,
  type Shape,
} from "../../../src/ops/index.js";
import { anyShape, broadcastShapesOf, call, operand } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

const side = (max: number): fc.Arbitrary<number> =>
  fc.oneof({ weight: 8, arbitrary: fc.integer({ min: 1, max }) }, { weight: 1, arbitrary: fc.constant(0) });

interface Operands {
  readonly left: Shape;
  readonly right: Shape;
}

/** Sizes that keep each operand and the product within bounds. */
function anyOperands(elements: number): fc.Arbitrary<Operands> {
  const max = Math.max(2, Math.floor(Math.sqrt(elements / 2)));
  const batches = broadcastShapesOf(2, {
    axes: [0, 3],
    elements: Math.max(1, Math.floor(elements / max ** 2)),
  });
  return fc
    .tuple(side(max), side(max), side(max), batches, fc.constantFrom("matrices", "row", "column", "both"))
    .map(([m, k, n, [a = [], b = []], vectors]) => ({
      left: vectors === "row" || vectors === "both" ? [k] : [...a, m, k],
      right: vectors === "column" || vectors === "both" ? [k] : [...b, k, n],
    }));
}

export const matmulCases: readonly OpCase[] = [
  opCase({
    op: matmul,
    gradients: [0, 1],
    draw: (elements) =>
      anyOperands(elements).chain(({ left, right }) => call([operand(left), operand(right)])),
  }),
  opCase({
    op: matmul,
    what: "square",
    gradients: [0, 1],
    draw: (elements) =>
      fc
        .integer({ min: 2, max: Math.max(2, Math.floor(Math.sqrt(elements))) })
        .chain((size) => call([operand([size, size]), operand([size, size])])),
  }),
  ...[true, false].flatMap((hasBias) =>
    (["outIn", "inOut"] as const).map((layout) =>
      opCase({
        op: linear,
        what: `${hasBias ? "with" : "without"} a bias, the weight ${layout}`,
        gradients: hasBias ? [0, 1, 2] : [0, 1],
        draw: (elements) => {
          const max = Math.max(2, Math.floor(Math.sqrt(elements / 2)));
          const rows = anyShape({ axes: [0, 3], elements: Math.max(1, Math.floor(elements / max)) });
          return fc.tuple(rows, side(max), side(max)).chain(([batch, width, out]) => {
            const weight = layout === "outIn" ? [out, width] : [width, out];
            const operands = [operand([...batch, width]), operand(weight)];
            return call(hasBias ? [...operands, operand([out])] : operands, fc.constant({ layout }));
          });
        },
      }),
    ),
  ),
  opCase({
    op: linear,
    what: "scaled",
    gradients: [0, 1, 2],
    draw: () => call([operand([3, 4]), operand([2, 4]), operand([2])], fc.constant({ scale: 0.75 })),
  }),
  ...[true, false].flatMap((hasBias) =>
    (["outIn", "inOut"] as const).map((layout) =>
      opCase({
        op: loraLinear,
        what: `${hasBias ? "with" : "without"} a bias, the weights ${layout}`,
        gradients: hasBias ? [0, 1, 2, 3, 4] : [0, 1, 2, 3],
        draw: (elements) => {
          const max = Math.max(2, Math.floor(Math.sqrt(elements / 2)));
          const rows = anyShape({ axes: [0, 3], elements: Math.max(1, Math.floor(elements / max)) });
          return fc.tuple(rows, side(max), side(max), side(3)).chain(([batch, width, out, rank]) => {
            const matrix = (shape: Shape) => operand(layout === "outIn" ? shape : shape.toReversed());
            const operands = [
              operand([...batch, width]),
              matrix([out, width]),
              matrix([rank, width]),
              matrix([out, rank]),
            ];
            return call(
              hasBias ? [...operands, operand([out])] : operands,
              fc.constant({ layout, scale: 1.5 }),
            );
          });
        },
      }),
    ),
  ),
  ...[true, false].map((hasBias) =>
    opCase({
      op: loraLinear,
      what: `A with an input of its own, ${hasBias ? "with" : "without"} a bias`,
      gradients: hasBias ? [0, 1, 2, 3, 4, 5] : [0, 1, 2, 3, 4],
      draw: () =>
        call(
          [
            ...[operand([2, 3, 4]), operand([5, 4]), operand([2, 4]), operand([5, 2])],
            ...[...(hasBias ? [operand([5])] : []), operand([2, 3, 4])],
          ],
          fc.constant({ scale: 1.5, inputOfA: hasBias ? 5 : 4 } as const),
        ),
    }),
  ),
  opCase({
    op: batchedLinear,
    gradients: [0, 1, 2, 3, 4],
    draw: (elements) => {
      const max = Math.max(2, Math.floor(Math.cbrt(elements)));
      return fc.tuple(side(max), side(max), side(max)).chain(([rows, width, out]) => {
        const weights = [operand([width, out]), operand([width, out])];
        return call([operand([rows, 2, width]), ...weights, operand([out]), operand([out])]);
      });
    },
  }),
  opCase({
    op: fusedProjections,
    gradients: [0, 1, 2, 3],
    draw: (elements) => {
      const max = Math.max(2, Math.floor(Math.cbrt(elements)));
      const rows = anyShape({ axes: [0, 3], elements: max });
      return fc.tuple(rows, side(max), side(max)).chain(([batch, width, out]) => {
        const weights = [0, 1, 2].map(() => operand([width, out]));
        return call([operand([...batch, width]), ...weights]);
      });
    },
  }),
];
