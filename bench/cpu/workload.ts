/**
 * The benchmark's model sizes, weights and batches, for contenders in JavaScript. peers/workload.py is its
 * twin in Python. Both compute every number from one hash of (seed, index), so all contenders train the same
 * weights on the same batches and their first losses agree.
 */

/**
 * CrossAsset: batch, sources, features, width, heads, layers, hidden width of the feed-forward layers,
 * classes.
 */
export const [B, S, F, D, H, L, hidden, C] = [256, 12, 193, 256, 4, 2, 1024, 3] as const;
export const batchCount = 4;
export const threads = 2;
export const gemmSize = { m: 3072, n: 256, k: 1024 } as const;

export interface Weight {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: Float32Array<ArrayBuffer>;
}

/** 32 bits that look random. */
export function hash(seed: number, index: number): number {
  let h = (index + Math.imul(seed, 0x9e3779b9)) | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((count, extent) => count * extent, 1);

/** Uniform around 0, with this standard deviation. */
export function values(seed: number, shape: readonly number[], deviation = 1): Float32Array<ArrayBuffer> {
  const data = new Float32Array(sizeOf(shape));
  for (let i = 0; i < data.length; i++) {
    data[i] = (hash(seed, i) / 2 ** 32 - 0.5) * deviation * Math.sqrt(12);
  }
  return data;
}

/** x [B, S, F] and labels [B, S]. */
export function batch(index: number): { x: Float32Array<ArrayBuffer>; labels: Int32Array<ArrayBuffer> } {
  const labels = Int32Array.from({ length: B * S }, (_, i) => hash(2000 + index, i) % C);
  return { x: values(1000 + index, [B, S, F]), labels };
}

/** The weights in order. The twelve input matrices are stacked in one [S, F, D]; "0.wq" is layer 0's Wq. */
export function weights(): Weight[] {
  const list: Weight[] = [];
  const matrix = (name: string, ...shape: number[]): void => {
    const fanIn = shape.at(-2) ?? 1;
    list.push({ name, shape, data: values(list.length + 1, shape, Math.sqrt(2 / fanIn)) });
  };
  const constant = (name: string, value: number, ...shape: number[]): void => {
    list.push({ name, shape, data: new Float32Array(sizeOf(shape)).fill(value) });
  };
  matrix("win", S, F, D);
  constant("bin", 0, S, 1, D);
  for (let layer = 0; layer < L; layer++) {
    for (const name of ["wq", "wk", "wv", "wo"]) matrix(`${layer}.${name}`, D, D);
    constant(`${layer}.g1`, 1, D);
    constant(`${layer}.s1`, 0, D);
    matrix(`${layer}.w1`, D, hidden);
    constant(`${layer}.b1`, 0, hidden);
    matrix(`${layer}.w2`, hidden, D);
    constant(`${layer}.b2`, 0, D);
    constant(`${layer}.g2`, 1, D);
    constant(`${layer}.s2`, 0, D);
  }
  matrix("wout", D, C);
  constant("bout", 0, C);
  return list;
}
