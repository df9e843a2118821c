/**
 * The 50 weights of CrossAsset at their real shapes. Faults with them did not show with a 4×4 matrix, so the
 * regression suite's uploads and captures use these.
 */

import type { Region, Runtime, UploadItem } from "holdfast/internals";

export interface Weight {
  readonly name: string;
  readonly shape: readonly number[];
}

const sources = 12;
const features = 193;
const width = 256;
const hidden = 1024;
const layers = 2;
const classes = 3;

const input = (source: number): Weight[] => [
  { name: `Win[${source}]`, shape: [features, width] },
  { name: `bin[${source}]`, shape: [width] },
];

const layer = (index: number): Weight[] => [
  { name: `layer${index}.Wq`, shape: [width, width] },
  { name: `layer${index}.Wk`, shape: [width, width] },
  { name: `layer${index}.Wv`, shape: [width, width] },
  { name: `layer${index}.Wo`, shape: [width, width] },
  { name: `layer${index}.norm1.gain`, shape: [width] },
  { name: `layer${index}.norm1.shift`, shape: [width] },
  { name: `layer${index}.W1`, shape: [width, hidden] },
  { name: `layer${index}.b1`, shape: [hidden] },
  { name: `layer${index}.W2`, shape: [hidden, width] },
  { name: `layer${index}.b2`, shape: [width] },
  { name: `layer${index}.norm2.gain`, shape: [width] },
  { name: `layer${index}.norm2.shift`, shape: [width] },
];

export const crossAssetWeights: readonly Weight[] = [
  ...Array.from({ length: sources }, (_, source) => input(source)).flat(),
  ...Array.from({ length: layers }, (_, index) => layer(index)).flat(),
  { name: "Wout", shape: [width, classes] },
  { name: "bout", shape: [classes] },
];

export function elementsOf({ shape }: Weight): number {
  return shape.reduce((count, extent) => count * extent, 1);
}

/** Distinct values from 0.5 on: bytes at a wrong address can't look right. */
export function distinctValues(elements: number, first: number): Float32Array<ArrayBuffer> {
  const half = 0x3f000000; // 0.5 as float32; the following bit patterns are the next larger numbers
  const bits = new Uint32Array(elements);
  for (let at = 0; at < elements; at++) bits[at] = half + first + at;
  return new Float32Array(bits.buffer);
}

export interface PlacedWeights {
  readonly region: Region;
  readonly items: readonly UploadItem[];
}

/** Places the 50 weights in one region and uploads their values. */
export function uploadWeights(runtime: Runtime): PlacedWeights {
  const placements = crossAssetWeights.map((weight) => ({ name: weight.name, size: 4 * elementsOf(weight) }));
  const region = runtime.persistent.place("weights", "CrossAsset", placements);
  let first = 0;
  const items = region.storages.map((target) => {
    const source = distinctValues(target.span.size / 4, first);
    first += source.length;
    return { source, target };
  });
  runtime.upload(items);
  return { region, items };
}
