/** The batches of the ten programs, computed from one hash. */

import { hash, values } from "../workload.js";
import type { ProgramName } from "./workloads.js";

export interface Input {
  readonly shape: readonly number[];
  readonly data: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>;
}
export type Batch = Readonly<Record<string, Input>>;

export const batchCount = 4;

export const batches = (name: ProgramName): readonly Batch[] =>
  Array.from({ length: batchCount }, (_, index) => draw[name](1000 * (index + 1)));

const floats = (shape: readonly number[], valueAt: (index: number) => number): Input => ({
  shape,
  data: Float32Array.from({ length: sizeOf(shape) }, (_, index) => valueAt(index)),
});
const integers = (shape: readonly number[], valueAt: (index: number) => number): Input => ({
  shape,
  data: Int32Array.from({ length: sizeOf(shape) }, (_, index) => valueAt(index)),
});
const noise = (seed: number, ...shape: number[]): Input => ({ shape, data: values(seed, shape) });
const sizeOf = (shape: readonly number[]): number => shape.reduce((count, extent) => count * extent, 1);
const unit = (seed: number, index: number): number => hash(seed, index) / 2 ** 32;

/** The share of the signal's variance that is left at each of the diffusion's 40 levels. */
const keptAt = (level: number): number => Math.cos(((level + 1) / 41) * (Math.PI / 2)) ** 2;

const draw: Readonly<Record<ProgramName, (seed: number) => Batch>> = {
  gpt(seed) {
    // Four letters, the separator, and the letters reversed.
    const ids = integers([48, 9], (index) => {
      const [row, place] = [Math.floor(index / 9), index % 9];
      return place === 4 ? 10 : hash(seed, row * 4 + Math.min(place, 8 - place)) % 10;
    });
    const targets = integers([48 * 4], (index) => ids.data[Math.floor(index / 4) * 9 + 5 + (index % 4)] ?? 0);
    return {
      ids: integers([48, 8], (index) => ids.data[Math.floor(index / 8) * 9 + (index % 8)] ?? 0),
      targets,
    };
  },
  "residual-convnet"(seed) {
    const random = values(seed, [32, 16, 16]);
    return {
      x: floats([32, 1, 16, 16], (index) => {
        const [image, y, x] = [Math.floor(index / 256), Math.floor(index / 16) % 16, index % 16];
        const angle = ((image % 4) * Math.PI) / 4;
        const wave = (x * Math.cos(angle) + y * Math.sin(angle)) * 1.2 + image * 2.4;
        return Math.sin(wave) + 0.5 * (random[index] ?? 0);
      }),
      targets: integers([32], (image) => image % 4),
    };
  },
  lstm(seed) {
    const numbers = values(seed, [64, 12]);
    const lengths = integers([64], (row) => 6 + (row % 7));
    const isUsed = (at: number): boolean => at % 12 < (lengths.data[Math.floor(at / 12)] ?? 0);
    const isMarked = (at: number): boolean => unit(seed + 1, at) < 0.4;
    const sums = new Float32Array(64);
    for (let at = 0; at < 64 * 12; at++)
      if (isUsed(at) && isMarked(at)) sums[Math.floor(at / 12)]! += numbers[at] ?? 0;
    return {
      x: floats([64, 12, 2], (index) => {
        const at = index >> 1;
        if (!isUsed(at)) return 0;
        return index % 2 ? Number(isMarked(at)) : (numbers[at] ?? 0);
      }),
      lengths,
      targets: integers([64], (row) => (sums[row]! > 0 ? 1 : 0)),
    };
  },
  vae: (seed) => ({
    x: floats([256, 64], (index) => {
      const image = index >> 6;
      const [cx, cy] = [1.5 + 4 * unit(seed, 2 * image), 1.5 + 4 * unit(seed, 2 * image + 1)];
      return Math.exp(-(((index % 8) - cx) ** 2 + (((index >> 3) % 8) - cy) ** 2) / 3);
    }),
    noise: noise(seed + 1, 256, 2),
  }),
  diffusion: (seed) => ({
    points: floats([256, 2], (index) => {
      const angle = 2 * Math.PI * unit(seed, index >> 1);
      return index % 2 ? Math.sin(angle) : Math.cos(angle);
    }),
    noise: noise(seed + 1, 256, 2),
    levels: integers([256], (row) => hash(seed + 2, row) % 40),
    signal: floats([256, 1], (row) => keptAt(hash(seed + 2, row) % 40)),
  }),
  tabular(seed) {
    const [towns, plans] = [
      (row: number) => hash(seed + 1, row) % 4,
      (row: number) => hash(seed + 2, row) % 2,
    ];
    const numbers = noise(seed, 50, 2);
    return {
      numbers,
      categories: integers([50, 2], (index) => (index % 2 ? plans : towns)(index >> 1)),
      targets: floats([50], (row) => {
        const score =
          (towns(row) % 2 ? 1.5 : -1.5) + (plans(row) ? -1 : 1) + (numbers.data[2 * row + 1] ?? 0);
        return score > 0 ? 1 : 0;
      }),
    };
  },
  "fine-tune"(seed) {
    const data = values(seed, [1000, 16]);
    const sum = (row: number, from: number) =>
      data.subarray(row * 16 + from, row * 16 + from + 8).reduce((total, value) => total + value, 0);
    return {
      x: { shape: [1000, 16], data },
      targets: integers([1000], (row) => (sum(row, 0) > 0 ? 2 : 0) + (sum(row, 8) > 0 ? 1 : 0)),
    };
  },
  service(seed) {
    const x = floats([64, 2], (index) => 2 * unit(seed, index) - 1);
    return { x, targets: floats([64], (row) => (x.data[2 * row] ?? 0) * (x.data[2 * row + 1] ?? 0)) };
  },
  "compiled-variants"(seed) {
    const x = noise(seed, 64, 4);
    const at = (index: number): number => x.data[index] ?? 0;
    const truth = (row: number) => at(4 * row) * at(4 * row + 1) + at(4 * row + 2) + at(4 * row + 3);
    return { x, targets: floats([64], truth) };
  },
  "custom-parts"(seed) {
    const x = noise(seed, 128, 2);
    const radius = (row: number) => (x.data[2 * row] ?? 0) ** 2 + (x.data[2 * row + 1] ?? 0) ** 2;
    return { x, targets: floats([128], (row) => (Math.abs(radius(row) - 1.4) < 0.9 ? 1 : 0)) };
  },
};
