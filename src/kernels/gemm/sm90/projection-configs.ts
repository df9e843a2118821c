/**
 * The config of grouped projections to a few columns, such as those of LoRA: x·Aᵀ for the query, key and value. They are bound by the reads of
 * x. In one launch they fill the SMs, and find x in the L2 cache.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { fillsSms } from "../../cost-model.js";
import type { GemmDesc } from "../desc.js";
import type { Sm90Config } from "./configs.js";
import { type Architecture, canImplement, elementOf, halvesOf } from "./select-config.js";
import { countCtas, type Sm90Tile } from "./tiles.js";

/** TMA loads an N-major B in boxes of so many columns. */
const maxColumns = 64;

/** With fewer CTAs than this share of the SMs, cuBLASLt splits K, which this kernel does not. */
const minSmShare = 1 / 3;

/** A tile with few rows, so that there are many CTAs, and many stages, so that two CTAs have enough loads in flight for an SM. */
function tileFor(problems: readonly GemmDesc[], isBKMajor: boolean): Sm90Tile {
  const columns = Math.max(...problems.map(({ n }) => n));
  const tileN = isBKMajor ? columns : maxColumns;
  return { tileM: 64, tileN, stages: 8, warpgroupsM: 1, warpgroupsN: 1, ctasPerSm: 2 };
}

/** Undefined if one launch cannot compute these. */
export function selectProjectionConfig(
  device: Architecture & Pick<DeviceInfo, "parallelism">,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): Sm90Config | undefined {
  const [first] = problems;
  const element = first && elementOf(device, precision, first);
  if (!first || !element || element === "tf32") return undefined;
  const isBKMajor = first.b.isTransposed === true;
  const { resultDtype } = halvesOf(first);
  const areProjections = problems.every(
    (problem) =>
      problem.n <= maxColumns &&
      problem.dtype === first.dtype &&
      halvesOf(problem).resultDtype === resultDtype &&
      (problem.b.isTransposed === true) === isBKMajor &&
      !problem.a.isTransposed &&
      !problem.bias &&
      (problem.batch ?? 1) === 1 &&
      canImplement({ ...problem, alpha: 1 }),
  );
  const tile = tileFor(problems, isBKMajor);
  const ctas = problems.reduce((sum, problem) => sum + countCtas(problem, tile), 0);
  if (!areProjections || !fillsSms(ctas, device.parallelism, minSmShare)) return undefined;
  return {
    ...{
      element,
      tile,
      isKMajor: { a: true, b: isBKMajor },
      hasBias: false,
      isUnbatched: true,
      hasAlpha: true,
    },
    ...(resultDtype && { resultDtype }),
  };
}
