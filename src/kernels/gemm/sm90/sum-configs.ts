/** Selects the configs of sums of products: operands of 16 bits, and tiles whose mainloop reads both operands from shared memory. */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { dtypes } from "../../../ir/index.js";
import { fillsSms } from "../../cost-model.js";
import type { Addend, GemmDesc } from "../desc.js";
import type { Sm90Config } from "./configs.js";
import { maxAddends, productsOf } from "./products.js";
import {
  type Architecture,
  canImplement,
  clusterOf,
  elementOf,
  halvesOf,
  isTmaAligned,
  pingPongConfig,
  prefetchOf,
} from "./select-config.js";
import { countCtas, tiles } from "./tiles.js";

type AddendDesc = Addend<GemmDesc["a"]>;

/** After the ping-pong kernel, which is the fastest for large results. */
const sumTiles = [tiles.large, tiles.paired, tiles.wide] as const;

/** The configs of a GEMM plus other products, the default first; none if no native kernel computes it. */
export function listSumConfigs(
  device: Architecture & Pick<DeviceInfo, "parallelism">,
  precision: GemmPrecision,
  problem: GemmDesc,
  addends: readonly AddendDesc[],
): readonly Sm90Config[] {
  const { n, batch = 1, a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || element === "tf32" || batch !== 1 || a.isTransposed || !canImplement(problem)) return [];
  if (addends.length === 0 || addends.length > maxAddends || !addends.every(isReadable(problem))) return [];
  const products = productsOf(addends);
  const isKMajor = { a: true, b: b.isTransposed === true };
  const filling = sumTiles.filter((tile) =>
    fillsSms(countCtas(problem, tile), device.parallelism, tile.ctasPerSm ?? 1),
  );
  const ofTiles = (filling.length > 0 ? filling : [tiles.small]).map((tile) => ({
    ...{ element, tile, isKMajor, hasBias: bias !== undefined, constantN: n, isUnbatched: true, products },
    ...{ ...halvesOf(problem), ...prefetchOf(problem), ...clusterOf([problem], tile) },
  }));
  const pingPong = pingPongConfig(device, problem, element);
  const configs = pingPong ? [{ ...pingPong, products }, ...ofTiles] : ofTiles;
  return configs.filter(({ tile }) => fillsSms(countCtas(problem, tile), device.parallelism, minSmShare));
}

/** True if TMA reads an addend's operands with the layouts of the GEMM's. */
function isReadable({ b, dtype }: GemmDesc): (addend: AddendDesc) => boolean {
  const { bytes } = dtypes[dtype];
  return (addend) =>
    addend.k > 0 &&
    !addend.a.isTransposed &&
    (addend.b.isTransposed === true) === (b.isTransposed === true) &&
    [addend.a, addend.b].every((operand) => isTmaAligned(operand, bytes));
}

/** With fewer CTAs than this share of the SMs, cuBLASLt splits K, which these kernels do not. */
const minSmShare = 1 / 3;

/**
 * What separate GEMMs gain, as a share of their time, from cuBLASLt's mainloop; and the operations of a GEMM in the time in which a byte
 * moves. An estimate, for sums that are not measured.
 */
const [mainloopGain, flopsPerByte] = [1 / 20, 256];

/** True if one launch is probably faster: it neither stores nor loads C for each addend, and has one mainloop. */
export function prefersSum(
  { k, dtype, resultDtype = dtype }: GemmDesc,
  addends: readonly { readonly k: number }[],
): boolean {
  const allK = addends.reduce((sum, addend) => sum + addend.k, k);
  // Per element of C.
  const savedBytes = 2 * dtypes[resultDtype].bytes * addends.length;
  return mainloopGain * 2 * allK <= flopsPerByte * savedBytes;
}
