/** Scratch memory of GEMMs: its size depends on the layouts and on the algorithm. */

import { gemmScratchBytes } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { GemmCall, Program } from "../program/program.js";
import { describeGemm } from "./gemm-desc.js";

/** The same GEMM with the scratch memory that it needs now. */
export function withScratch(
  runtime: Runtime,
  program: Program,
  problem: GemmCall["problem"],
): GemmCall["problem"] {
  const { scratch, ...rest } = problem;
  const size = gemmScratchBytes(runtime, describeGemm(problem));
  if (size === (scratch?.size ?? 0)) return problem;
  return size === 0
    ? rest
    : { ...rest, scratch: { buffer: program.makeBuffer(size, "GEMM scratch"), offset: 0, size } };
}
