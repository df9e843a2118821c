/** repeatInterleave and tile: elements, or the whole, several times over. Stretched views, copied once. */

import { expand } from "../broadcast.js";
import { contiguous } from "../elementwise/cast.js";
import { type CompositeOp, typeAt } from "../op.js";
import { axisOf, badShape, formatShape, requireSize, type Shape } from "../shape.js";
import { reshape } from "./reshape.js";

/** Each element along an axis `repeats` times, one behind the other. */
export const repeatInterleave: CompositeOp<{ readonly repeats: number; readonly axis: number }> = {
  kind: "composite",
  name: "repeatInterleave",
  infer(operands, { repeats, axis }) {
    const { shape, dtype } = typeAt("repeatInterleave", operands, 0);
    requireSize("repeatInterleave", repeats, "the number of repeats");
    const place = axisOf("repeatInterleave", axis, shape.length);
    return [{ shape: shape.with(place, (shape[place] ?? 0) * repeats), dtype }];
  },
  compose({ apply, typeOf }, [x = 0], { repeats, axis }) {
    const { shape } = typeOf(x);
    const place = axisOf("repeatInterleave", axis, shape.length);
    const apart = apply(reshape, [x], { shape: shape.toSpliced(place + 1, 0, 1) });
    const stretched = apply(expand, [apart], { shape: shape.toSpliced(place + 1, 0, repeats) });
    const joined = apply(reshape, [stretched], { shape: shape.with(place, (shape[place] ?? 0) * repeats) });
    return [isSeen(shape[place], repeats) ? apply(contiguous, [joined]) : joined];
  },
};

/** The whole `repeats[axis]` times along each axis; aligned at the last axes, as shapes are that broadcast. */
export const tile: CompositeOp<{ readonly repeats: Shape }> = {
  kind: "composite",
  name: "tile",
  infer(operands, { repeats }) {
    const { shape, dtype } = typeAt("tile", operands, 0);
    if (!repeats.every((count) => Number.isSafeInteger(count) && count >= 0)) {
      throw badShape("tile", `repeats ${formatShape(repeats)}: give whole numbers of 0 or more.`);
    }
    const { sizes, counts } = aligned(shape, repeats);
    return [{ shape: sizes.map((size, axis) => size * (counts[axis] ?? 1)), dtype }];
  },
  compose({ apply, typeOf }, [x = 0], { repeats }) {
    const { sizes, counts } = aligned(typeOf(x).shape, repeats);
    const apart = apply(reshape, [x], { shape: sizes.flatMap((size) => [1, size]) });
    const stretched = apply(expand, [apart], {
      shape: sizes.flatMap((size, axis) => [counts[axis] ?? 1, size]),
    });
    const joined = apply(reshape, [stretched], {
      shape: sizes.map((size, axis) => size * (counts[axis] ?? 1)),
    });
    return [sizes.every((size, axis) => isSeen(size, counts[axis])) ? apply(contiguous, [joined]) : joined];
  },
};

/** Can an axis be repeated by a view alone? Then it has to be copied: a result has memory of its own. */
function isSeen(size = 1, repeats = 1): boolean {
  return size === 1 || repeats === 1;
}

function aligned(shape: Shape, repeats: Shape): { sizes: Shape; counts: Shape } {
  const rank = Math.max(shape.length, repeats.length);
  const fill = (sizes: Shape): Shape => [...new Array<number>(rank - sizes.length).fill(1), ...sizes];
  return { sizes: fill(shape), counts: fill(repeats) };
}
