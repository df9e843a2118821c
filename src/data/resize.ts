/** Bilinear resizing with antialiasing: each output pixel is a weighted mean of the input pixels below a triangle. */

import type { ImageArray } from "./images/index.js";

/** Bytes are rounded to the nearest. */
export function resizeBilinear(image: ImageArray, height: number, width: number): ImageArray {
  const [channels, rows, columns] = image.shape;
  const wide = resizeAxis(image.values, { outer: channels * rows, size: columns, inner: 1 }, width);
  const both = resizeAxis(wide, { outer: channels, size: rows, inner: width }, height);
  const values =
    image.values instanceof Uint8Array ? Uint8Array.from(both, Math.round) : Float32Array.from(both);
  return { values, shape: [channels, height, width] };
}

/** An array as [outer, size, inner], of which the middle axis is resized. */
interface Axis {
  readonly outer: number;
  readonly size: number;
  readonly inner: number;
}

function resizeAxis(values: ArrayLike<number>, { outer, size, inner }: Axis, newSize: number): Float64Array {
  const resized = new Float64Array(outer * newSize * inner);
  const scale = size / newSize;
  const radius = Math.max(1, scale);
  for (let to = 0; to < newSize; to++) {
    const center = (to + 0.5) * scale;
    const first = Math.max(0, Math.floor(center - radius + 0.5));
    const last = Math.min(size, Math.floor(center + radius + 0.5));
    const weights = Float64Array.from({ length: last - first }, (_, index) =>
      Math.max(0, 1 - Math.abs(first + index + 0.5 - center) / radius),
    );
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    for (let block = 0; block < outer; block++) {
      const target = (block * newSize + to) * inner;
      for (const [index, weight] of weights.entries()) {
        const source = (block * size + first + index) * inner;
        for (let at = 0; at < inner; at++)
          resized[target + at] = (resized[target + at] ?? 0) + (weight / total) * (values[source + at] ?? 0);
      }
    }
  }
  return resized;
}
