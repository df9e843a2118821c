/**
 * Which native kernel computes float32 GEMMs on Hopper, alone and in groups: six bf16 products, or DMMA. A GEMM in a group has the kernel, and
 * so the bits, that it has alone.
 */

import type { LaunchCommand } from "../../runtime/index.js";
import type { Target } from "../target.js";
import { areEqualConfigs, bf16x6ConfigOf, lowerBf16x6Gemms } from "./bf16x6/index.js";
import type { GemmDesc, GemmInputDtype, GemmProblem } from "./desc.js";
import { dmmaConfigOf, dmmaConfigsOf, lowerDmmaGemms } from "./dmma/index.js";

type TargetFacts = Pick<Target, "device" | "settings">;

/** The number of algorithms with the same bits that can compute these GEMMs in one launch, the default first; 0 if there is none. */
export function exactGemmCandidates(target: TargetFacts, problems: readonly GemmDesc[]): number {
  const configs = problems.map((problem) => bf16x6ConfigOf(target, problem));
  const ofBf16x6 = configs.filter((config) => config !== undefined);
  if (ofBf16x6.length === 0) return dmmaConfigsOf(target, problems).length;
  // With the same K, the CTAs of a group end at the same time.
  const haveSameK = new Set(problems.map(({ k }) => k)).size === 1;
  return haveSameK && ofBf16x6.length === problems.length && areEqualConfigs(ofBf16x6) ? 1 : 0;
}

/** One launch for these GEMMs; undefined if no native kernel computes them together. */
export function lowerF32Gemms(
  target: TargetFacts,
  problems: readonly GemmProblem<GemmInputDtype>[],
  op: string,
): LaunchCommand | undefined {
  const [first] = problems;
  if (!first || exactGemmCandidates(target, problems) === 0) return undefined;
  const bf16x6 = bf16x6ConfigOf(target, first);
  if (bf16x6) return lowerBf16x6Gemms(problems, bf16x6, op);
  const dmma = dmmaConfigOf(target, problems);
  return dmma && lowerDmmaGemms(problems, dmma, op);
}
