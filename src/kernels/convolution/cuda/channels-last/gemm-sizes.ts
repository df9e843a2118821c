/** A channels-last convolution as a GEMM. */

import { areaOf, type ChannelsLastShape, paddedChannels } from "../../problem.js";
import { residueAxis, type WindowAxis } from "./axes.js";

export interface GemmSizes {
  readonly m: number;
  readonly n: number;
  readonly kTiles: number;
}

/** The sizes of the GEMM; of the input gradient of a strided convolution, those of one residue class. */
export function gemmSizes(shape: ChannelsLastShape, tileK: number): GemmSizes {
  const { direction, batch, channels, outChannels, outSize, kernel } = shape;
  const [taps, inChannels] = [areaOf(kernel), paddedChannels(channels, shape)];
  switch (direction) {
    case "forward":
      return { m: batch * areaOf(outSize), n: outChannels, kTiles: Math.ceil((taps * inChannels) / tileK) };
    case "input-gradient": {
      const [axes] = residueClasses(shape);
      const [positions, classTaps] = axes
        ? [axes[0].positions * axes[1].positions, axes[0].taps * axes[1].taps]
        : [0, 0];
      const kTiles = Math.ceil((classTaps * paddedChannels(outChannels, shape)) / tileK);
      return { m: batch * positions, n: channels, kTiles };
    }
    case "weight-gradient":
      return { m: outChannels, n: taps * inChannels, kTiles: Math.ceil((batch * areaOf(outSize)) / tileK) };
  }
}

export function countTiles(
  { m, n }: Pick<GemmSizes, "m" | "n">,
  { tileM, tileN }: { readonly tileM: number; readonly tileN: number },
): number {
  return Math.ceil(m / tileM) * Math.ceil(n / tileN);
}

export type Axes = readonly [rows: WindowAxis, columns: WindowAxis];

/** The classes of input elements that meet the same taps. Those without elements are left out. */
export function residueClasses(shape: ChannelsLastShape): readonly Axes[] {
  const [rows, columns] = ([0, 1] as const).map((axis) =>
    Array.from({ length: shape.stride[axis] }, (_, residue) => residueAxis(shape, axis, residue)),
  ) as [WindowAxis[], WindowAxis[]];
  return rows
    .flatMap((row) => columns.map((column): Axes => [row, column]))
    .filter(([row, column]) => row.positions * column.positions > 0);
}
