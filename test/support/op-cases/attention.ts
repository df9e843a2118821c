/** Cases of attention, in the kernel's axes and in PyTorch's, with masks of both kinds; and of dropout. */

import fc from "fast-check";
import {
  attention,
  attentionWithDropout,
  causalMask,
  dropout,
  packedAttention,
  type Shape,
  scaledDotProductAttention,
} from "../../../src/ops/index.js";
import { anyShape, broadcastShapesOf, call, operand, whole } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

interface Sizes {
  readonly rows: number;
  readonly columns: number;
  readonly width: number;
  readonly valueWidth: number;
}

const anySizes: fc.Arbitrary<Sizes> = fc.record({
  rows: fc.integer({ min: 1, max: 3 }),
  columns: fc.integer({ min: 1, max: 3 }),
  width: fc.integer({ min: 1, max: 3 }),
  valueWidth: fc.integer({ min: 1, max: 2 }),
});

const attributes = fc
  .record({ isCausal: fc.boolean(), scale: fc.constantFrom(undefined, 0.5) })
  .map(({ isCausal, scale }) => ({ isCausal, ...(scale !== undefined && { scale }) }));

/** The axes before the rows, for three operands and a mask. */
function anyOuter(elements: number): fc.Arbitrary<readonly Shape[]> {
  return broadcastShapesOf(4, { axes: [0, 3], elements: Math.max(1, Math.floor(elements / 9)) });
}

function asOperands([query = [], key = [], value = []]: readonly Shape[], sizes: Sizes) {
  const { rows, columns, width, valueWidth } = sizes;
  return [
    operand([...query, rows, width]),
    operand([...key, columns, width]),
    operand([...value, columns, valueWidth]),
  ];
}

export const attentionCases: readonly OpCase[] = [
  opCase({
    op: attention,
    gradients: [0, 1, 2],
    draw: (elements) =>
      fc
        .tuple(
          anyShape({ axes: [0, 2], elements: Math.max(1, Math.floor(elements / 9)) }),
          anySizes,
          fc.integer({ min: 1, max: 2 }),
        )
        .chain(([batch, { rows, columns, width, valueWidth }, heads]) =>
          call(
            [
              operand([...batch, rows, heads, width]),
              operand([...batch, columns, heads, width]),
              operand([...batch, columns, heads, valueWidth]),
            ],
            attributes,
          ),
        ),
  }),
  opCase({
    op: packedAttention,
    gradients: [0],
    draw: (elements) =>
      fc
        .tuple(
          anyShape({ axes: [0, 2], elements: Math.max(1, Math.floor(elements / 9)) }),
          anySizes,
          fc.integer({ min: 1, max: 2 }),
        )
        .chain(([batch, { rows, width }, heads]) =>
          call([operand([...batch, rows, 3, heads, width])], attributes),
        ),
  }),
  opCase({
    op: packedAttention,
    what: "with an additive mask",
    gradients: [0, 1],
    draw: (elements) =>
      fc
        .tuple(
          anyShape({ axes: [0, 2], elements: Math.max(1, Math.floor(elements / 9)) }),
          anySizes,
          fc.integer({ min: 1, max: 2 }),
          fc.boolean(),
        )
        .chain(([batch, { rows, width }, heads, isShared]) => {
          const mask = operand(isShared ? [1, rows] : [...batch, heads, rows, rows]);
          return call([operand([...batch, rows, 3, heads, width]), mask], attributes);
        }),
  }),
  opCase({
    op: scaledDotProductAttention,
    gradients: [0, 1, 2],
    draw: (elements) =>
      fc
        .tuple(anyOuter(elements), anySizes)
        .chain(([outer, sizes]) => call(asOperands(outer, sizes), attributes)),
  }),
  opCase({
    op: scaledDotProductAttention,
    what: "with an additive mask",
    gradients: [0, 1, 2, 3],
    draw: (elements) =>
      fc
        .tuple(
          anyShape({ axes: [0, 3], elements: Math.max(1, Math.floor(elements / 9)) }),
          anySizes,
          fc.boolean(),
        )
        .chain(([outer, sizes, isShared]) => {
          const { rows, columns } = sizes;
          const mask = operand(isShared ? [1, columns] : [...outer, rows, columns]);
          return call([...asOperands([outer, outer, outer], sizes), mask], attributes);
        }),
  }),
  opCase({
    op: scaledDotProductAttention,
    what: "with a boolean mask",
    gradients: [0, 1, 2],
    draw: (elements) =>
      fc.tuple(anyOuter(elements), anySizes).chain(([outer, sizes]) => {
        const { rows, columns } = sizes;
        // Every row sees its first column: without columns there are no probabilities.
        const mask = operand([rows, columns], {
          values: whole(0, 1),
          dtype: "bool",
          layouts: ["contiguous"],
        }).map((call) => ({
          ...call,
          values: call.values.map((seen, at) => (at % columns === 0 ? 1 : seen)),
        }));
        return call([...asOperands(outer, sizes), mask], attributes);
      }),
  }),
  ...[false, true].map((rowsFirst) =>
    opCase({
      op: scaledDotProductAttention,
      what: rowsFirst ? "of grouped heads, rows first" : "of grouped heads",
      gradients: [0, 1, 2],
      draw: () =>
        fc
          .tuple(anySizes, fc.constantFrom([2, 1], [4, 2], [3, 3]), attributes)
          .chain(([{ rows, columns, width, valueWidth }, [heads = 1, keyHeads = 1], others]) => {
            const shapeOf = (of: number, count: number, size: number): Shape =>
              rowsFirst ? [2, count, of, size] : [2, of, count, size];
            const shapes = [
              shapeOf(heads, rows, width),
              shapeOf(keyHeads, columns, width),
              shapeOf(keyHeads, columns, valueWidth),
            ];
            return call(
              shapes.map((shape) => operand(shape)),
              fc.constant({ ...others, rowsFirst, enableGqa: true }),
            );
          }),
    }),
  ),
  ...[false, true].map((hasMask) =>
    opCase({
      op: attentionWithDropout,
      what: hasMask ? "with an additive mask" : "without a mask",
      gradients: hasMask ? [0, 1, 2, 4] : [0, 1, 2],
      draw: (elements) =>
        fc
          .tuple(anyOuter(elements), anySizes, attributes, fc.constantFrom(0, 0.4, 1))
          .chain(([outer, sizes, probability, p]) => {
            const mask = operand([sizes.rows, sizes.columns]);
            const operands = [
              ...asOperands(outer, sizes),
              "randomState" as const,
              ...(hasMask ? [mask] : []),
            ];
            return call(operands, fc.constant({ ...probability, p }));
          }),
    }),
  ),
  opCase({
    op: causalMask,
    gradients: "none",
    draw: () =>
      call(
        [],
        fc.record({
          rows: fc.integer({ min: 0, max: 4 }),
          columns: fc.integer({ min: 0, max: 4 }),
          dtype: fc.constantFrom("f32", "f64"),
        }),
      ),
  }),
  opCase({
    op: dropout,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements }).chain((shape) =>
        call([operand(shape), "randomState"], fc.record({ p: fc.constantFrom(0, 0.1, 0.5, 0.9, 1) })),
      ),
  }),
];
