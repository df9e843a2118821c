/** repeatInterleave and tile: repeat elements, or the whole array. Expanded views, copied once. */

import { expand } from "../broadcast.js";
import { contiguous } from "../elementwise/cast.js";
import { type CompositeOp, typeAt } from "../op.js";
import { axisOf, badShape, formatShape, requireList, requireSize, type Shape } from "../shape.js";
import { reshape } from "./reshape.js";

/** Repeats each element along an axis `repeats` times in a row. */
export const repeatInterleave: CompositeOp<{ readonly repeats: number; readonly axis: number }> = {
  kind: "composite",
  name: "repeatInterleave",
  infer(operands, { repeats, axis }) {
    const { shape, dtype } = typeAt("repeatInterleave", operands, 0);
    requireSize("repeatInterleave", repeats, "the number of repeats");
    const repeatedAxis = axisOf("repeatInterleave", axis, shape.length);
    return [{ shape: shape.with(repeatedAxis, (shape[repeatedAxis] ?? 0) * repeats), dtype }];
  },
  compose({ apply, typeOf }, [x = 0], { repeats, axis }) {
    const { shape } = typeOf(x);
    const repeatedAxis = axisOf("repeatInterleave", axis, shape.length);
    const unsqueezed = apply(reshape, [x], { shape: shape.toSpliced(repeatedAxis + 1, 0, 1) });
    const expanded = apply(expand, [unsqueezed], { shape: shape.toSpliced(repeatedAxis + 1, 0, repeats) });
    const merged = apply(reshape, [expanded], {
      shape: shape.with(repeatedAxis, (shape[repeatedAxis] ?? 0) * repeats),
    });
    return [isViewable(shape[repeatedAxis], repeats) ? apply(contiguous, [merged]) : merged];
  },
};

/** Repeats the array `repeats[axis]` times along each axis. `repeats` aligns with the last axes, as in broadcasting. */
export const tile: CompositeOp<{ readonly repeats: Shape }> = {
  kind: "composite",
  name: "tile",
  infer(operands, { repeats }) {
    const { shape, dtype } = typeAt("tile", operands, 0);
    requireList("tile", repeats, "shape");
    if (!repeats.every((count) => Number.isSafeInteger(count) && count >= 0)) {
      throw badShape("tile", `repeats ${formatShape(repeats)}: pass whole numbers, 0 or more.`);
    }
    const { sizes, counts } = aligned(shape, repeats);
    return [{ shape: sizes.map((size, axis) => size * (counts[axis] ?? 1)), dtype }];
  },
  compose({ apply, typeOf }, [x = 0], { repeats }) {
    const { sizes, counts } = aligned(typeOf(x).shape, repeats);
    const unsqueezed = apply(reshape, [x], { shape: sizes.flatMap((size) => [1, size]) });
    const expanded = apply(expand, [unsqueezed], {
      shape: sizes.flatMap((size, axis) => [counts[axis] ?? 1, size]),
    });
    const merged = apply(reshape, [expanded], {
      shape: sizes.map((size, axis) => size * (counts[axis] ?? 1)),
    });
    return [
      sizes.every((size, axis) => isViewable(size, counts[axis])) ? apply(contiguous, [merged]) : merged,
    ];
  },
};

/** True if a view can repeat an axis. The view is then copied: a result has memory of its own. */
function isViewable(size = 1, repeats = 1): boolean {
  return size === 1 || repeats === 1;
}

function aligned(shape: Shape, repeats: Shape): { sizes: Shape; counts: Shape } {
  const rank = Math.max(shape.length, repeats.length);
  const fill = (sizes: Shape): Shape => [...new Array<number>(rank - sizes.length).fill(1), ...sizes];
  return { sizes: fill(shape), counts: fill(repeats) };
}
