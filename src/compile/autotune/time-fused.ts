/** Measures fused calls, and the GEMMs without them. */

import type { Runtime } from "../../runtime/index.js";
import { minMeasuredElements } from "../cost-model.js";
import type { GemmCall, Work } from "../program/program.js";
import { measureGemms, tunedUsOf } from "./gemms.js";
import { choiceOf, measureCalls, type TunableKind, type TuneOptions } from "./tune-calls.js";

/** A fused call, and the GEMMs without it. */
interface Alternative<Fused> {
  readonly work: Fused;
  readonly gemms: readonly GemmCall[];
}

interface AlternativeTimes {
  readonly fusedUs: number;
  readonly gemmsUs: number;
}

/** Measures the alternatives with large results. Returns the times of one, undefined if a measurement is missing. */
export function timeFused<Fused extends Work & Pick<GemmCall, "problem">>(
  kind: TunableKind<Fused>,
  runtime: Runtime,
  alternatives: readonly Alternative<Fused>[],
  tuning: TuneOptions,
): (alternative: Alternative<Fused>) => AlternativeTimes | undefined {
  const large = alternatives.filter(
    ({ work: { problem } }) => problem.m * problem.n >= minMeasuredElements(runtime.device),
  );
  measureCalls(
    kind,
    runtime,
    large.map(({ work }) => work),
    tuning,
  );
  measureGemms(
    runtime,
    large.flatMap(({ gemms }) => gemms),
    tuning.clock ? { clock: tuning.clock } : {},
  );
  return ({ work, gemms }) => {
    const fusedUs = choiceOf(kind, runtime, work, tuning.known)?.us;
    const gemmUs = gemms.map((gemm) => tunedUsOf(runtime, gemm));
    if (fusedUs === undefined || !gemmUs.every((us) => us !== undefined)) return undefined;
    return { fusedUs, gemmsUs: gemmUs.reduce((sum, us) => sum + us, 0) };
  };
}
