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
import { bf16x6Parameters, bf16x6Source } from "./kernel.js";

/** The config of a GEMM that six bf16 products compute faster than DMMA, by estimate: a choice that depends on the shape and the device only. */
export function bf16x6ConfigOf(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): Bf16x6Config | undefined {
  const selected = selectBf16x6(device, settings.precision, problem);
  if (!selected) return undefined;
  const dmmaClocks = estimateDmmaClocks(device, settings.precision, problem);
  return dmmaClocks === undefined || selected.clocks < dmmaClocks ? selected.config : undefined;
}

export function lowerBf16x6Gemm(
  problem: GemmProblem<GemmInputDtype>,
  config: Bf16x6Config,
  op: string,
): LaunchCommand {
  const access = accessToC(problem);
  const { values, ctas } = groupArguments([problem], (gemm) => countCtas(gemm, config));
  Object.assign(values, { aElements: problem.a.storage, bElements: problem.b.storage });
  return {
    ...{ kind: "launch", op, source: sourceOf(config, access), blocks: ctas },
    arguments: argumentsInOrder(bf16x6Parameters(config, access), values),
  };
}

function sourceOf(config: Bf16x6Config, access: AccessToC): KernelSource {
  return cachedSource(`bf16x6 gemm ${access} ${literalKey(config)}`, () => bf16x6Source(config, access));
}
