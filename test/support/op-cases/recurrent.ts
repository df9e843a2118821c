/** Cases of recurrent layers: each cell, in both directions, with and without rows of different lengths. */

import fc from "fast-check";
import { type Cell, recurrent } from "../../../src/ops/index.js";
import { between, call, operand } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

const gates: Readonly<Record<"lstm" | "gru" | "tanh", number>> = { lstm: 4, gru: 3, tanh: 1 };

const size = (max: number): fc.Arbitrary<number> => fc.integer({ min: 1, max });

function recurrentCase(cell: "lstm" | "gru" | "tanh", isMasked: boolean): OpCase {
  return opCase({
    op: recurrent,
    what: `${cell}${isMasked ? " with a mask" : ""}`,
    gradients: cell === "tanh" ? [0, 1, 2] : [0, 1, 2, 3],
    draw: () =>
      fc.tuple(size(4), size(3), size(3), fc.boolean()).chain(([steps, batch, hidden, isReversed]) => {
        const width = gates[cell] * hidden;
        const values = { values: between(-1, 1) };
        const lengths = fc.array(fc.integer({ min: 0, max: steps }), { minLength: batch, maxLength: batch });
        const mask = lengths.map((each) => ({
          shape: [steps, batch],
          values: Array.from({ length: steps * batch }, (_, index) =>
            Math.floor(index / batch) < (each[index % batch] ?? 0) ? 1 : 0,
          ),
          ...({ dtype: "bool", layout: "contiguous" } as const),
        }));
        const attributes = fc.constant({ cell: cell as Cell, isReversed });
        return call(
          [
            operand([steps, batch, width], values),
            operand([batch, hidden], values),
            operand([width, hidden], values),
            ...(cell === "lstm" ? [operand([batch, hidden], values)] : []),
            ...(cell === "gru" ? [operand([width], values)] : []),
            ...(isMasked ? [mask] : []),
          ],
          attributes,
        );
      }),
  });
}

export const recurrentCases: readonly OpCase[] = (["lstm", "gru", "tanh"] as const).flatMap((cell) =>
  [false, true].map((isMasked) => recurrentCase(cell, isMasked)),
);
