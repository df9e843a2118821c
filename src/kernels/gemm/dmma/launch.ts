/** Launches DMMA GEMMs. */

import type { KernelSource } from "../../../driver/index.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import { type AccessToC, accessToC, type GemmDesc, type GemmInputDtype, type GemmProblem } from "../desc.js";
import { groupArguments } from "../group-launch.js";
import { countCtas, type DmmaConfig, listDmmaConfigs } from "./configs.js";
import { dmmaParameters, dmmaSource } from "./kernel.js";

type TargetFacts = Pick<Target, "device" | "settings">;

/** The config of a group of GEMMs; undefined if DMMA cannot compute them, or not together. */
export function dmmaConfigOf(target: TargetFacts, problems: readonly GemmDesc[]): DmmaConfig | undefined {
  const configs = dmmaConfigsOf(target, problems);
  return configs[problems[0]?.algorithm ?? 0] ?? configs[0];
}

/** The configs that an algorithm of the group numbers; empty if DMMA cannot compute them. */
export function dmmaConfigsOf(
  { device, settings }: TargetFacts,
  problems: readonly GemmDesc[],
): readonly DmmaConfig[] {
  return listDmmaConfigs(device, settings.precision, problems);
}

/** One launch for independent GEMMs of one config. */
export function lowerDmmaGemms(
  problems: readonly GemmProblem<GemmInputDtype>[],
  config: DmmaConfig,
  op: string,
): LaunchCommand {
  const accesses = problems.map(accessToC);
  const { values, ctas } = groupArguments(problems, (problem) => countCtas(problem, config.tile));
  return {
    ...{ kind: "launch", op, source: sourceOf(config, accesses), blocks: ctas },
    arguments: argumentsInOrder(dmmaParameters(config, accesses), values),
  };
}

function sourceOf(config: DmmaConfig, accesses: readonly AccessToC[]): KernelSource {
  return cachedSource(`dmma gemm ${accesses.join(" ")} ${literalKey(config)}`, () =>
    dmmaSource(config, accesses),
  );
}
