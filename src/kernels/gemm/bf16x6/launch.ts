/** Launches bf16x6 GEMMs. */

import type { KernelSource } from "../../../driver/index.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import { type AccessToC, accessToC, type GemmDesc, type GemmInputDtype, type GemmProblem } from "../desc.js";
import { estimateDmmaClocks } from "../dmma/index.js";
import { groupArguments } from "../group-launch.js";
import { type Bf16x6Config, countCtas, selectBf16x6 } from "./configs.js";
import { bf16x6Parameters, bf16x6Source, elementNames } from "./kernel.js";

/**
 * The config of a GEMM that six bf16 products compute faster than DMMA, by estimate. The choice depends on the shape and the device only, so
 * that eager and compiled steps have the same bits.
 */
export function bf16x6ConfigOf(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): Bf16x6Config | undefined {
  const selected = selectBf16x6(device, settings.precision, problem);
  if (!selected) return undefined;
  const dmmaClocks = estimateDmmaClocks(device, settings.precision, problem);
  // Where DMMA has too few CTAs, cuBLASLt's split-K is faster.
  return dmmaClocks !== undefined && selected.clocks < maxShareOfDmma * dmmaClocks
    ? selected.config
    : undefined;
}

/** DMMA has smaller errors, so that a small gain does not count. */
const maxShareOfDmma = 0.9;

/** One launch for independent GEMMs of one config. */
export function lowerBf16x6Gemms(
  problems: readonly GemmProblem<GemmInputDtype>[],
  config: Bf16x6Config,
  op: string,
): LaunchCommand {
  const accesses = problems.map(accessToC);
  const { values, ctas } = groupArguments(problems, (problem) => countCtas(problem, config));
  for (const [gemm, { a, b }] of problems.entries()) {
    const [aElements, bElements] = elementNames(gemm);
    Object.assign(values, { [aElements]: a.storage, [bElements]: b.storage });
  }
  return {
    ...{ kind: "launch", op, source: sourceOf(config, accesses), blocks: ctas },
    arguments: argumentsInOrder(bf16x6Parameters(config, accesses), values),
  };
}

function sourceOf(config: Bf16x6Config, accesses: readonly AccessToC[]): KernelSource {
  return cachedSource(`bf16x6 gemm ${accesses.join(" ")} ${literalKey(config)}`, () =>
    bf16x6Source(config, accesses),
  );
}
